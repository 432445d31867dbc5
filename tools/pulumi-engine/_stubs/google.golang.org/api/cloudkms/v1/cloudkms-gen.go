// Package cloudkms keeps the one name that the engine reads.
package cloudkms

const CloudkmsScope = ""
