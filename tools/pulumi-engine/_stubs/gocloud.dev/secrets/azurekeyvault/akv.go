// Package azurekeyvault has no azurekeyvault:// in this build.
package azurekeyvault
