// Package authhelpers has no Google Cloud in this build.
package authhelpers

import (
	"context"
	"errors"

	"gocloud.dev/blob"
	"golang.org/x/oauth2"
)

var errMissing = errors.New("this Pulumi was built without Google Cloud; use an official release")

// Credentials are what the secrets manager reads.
type Credentials struct{ TokenSource oauth2.TokenSource }

func ResolveGoogleCredentials(context.Context, string) (*Credentials, error) {
	return nil, errMissing
}

func GoogleCredentialsMux(context.Context) (*blob.URLMux, error) { return nil, errMissing }
