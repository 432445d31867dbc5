// Package gcpkms has no gcpkms:// in this build.
package gcpkms

import (
	"context"
	"errors"
	"net/url"

	"gocloud.dev/secrets"
	"golang.org/x/oauth2"
)

const Scheme = "gcpkms"

var errMissing = errors.New("this Pulumi was built without Google Cloud; use an official release")

type client struct{}

func Dial(context.Context, oauth2.TokenSource) (*client, func(), error) {
	return nil, nil, errMissing
}

type URLOpener struct{ Client *client }

func (*URLOpener) OpenKeeperURL(context.Context, *url.URL) (*secrets.Keeper, error) {
	return nil, errMissing
}
