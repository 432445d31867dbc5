// Package gcsblob has no gs:// in this build.
package gcsblob

const Scheme = "gs"
