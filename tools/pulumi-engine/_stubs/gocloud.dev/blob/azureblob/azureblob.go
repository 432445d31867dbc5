// Package azureblob has no azblob:// in this build.
package azureblob

import (
	"context"
	"errors"
	"net/url"

	"gocloud.dev/blob"
)

const Scheme = "azblob"

var errMissing = errors.New("this Pulumi was built without Azure; use an official release")

type ServiceURLOptions struct{}

func NewDefaultServiceURLOptions() *ServiceURLOptions { return &ServiceURLOptions{} }

func NewDefaultClient() error { return errMissing }

type URLOpener struct {
	MakeClient        func() error
	ServiceURLOptions ServiceURLOptions
}

func (*URLOpener) OpenBucketURL(context.Context, *url.URL) (*blob.Bucket, error) {
	return nil, errMissing
}
