// No `pulumi logs` of a cloud's functions in this build.
package operations

import (
	"context"
	"errors"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/config"
)

var errMissing = errors.New("this Pulumi was built without `pulumi logs`; use an official release")

func AWSOperationsProvider(context.Context, map[config.Key]string, *Resource) (Provider, error) {
	return nil, errMissing
}
