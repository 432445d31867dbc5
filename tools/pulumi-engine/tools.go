//go:build tools

// Package tools pins the Pulumi CLI, so that it can be built where its official release can't be
// downloaded. millrace/setup/engine.py runs the build.
package tools

import _ "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"
