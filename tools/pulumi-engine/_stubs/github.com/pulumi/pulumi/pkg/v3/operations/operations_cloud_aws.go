package operations

import "github.com/pulumi/pulumi/sdk/v3/go/common/resource/config"

func CloudOperationsProvider(map[config.Key]string, *Resource) (Provider, error) {
	return nil, errMissing
}
