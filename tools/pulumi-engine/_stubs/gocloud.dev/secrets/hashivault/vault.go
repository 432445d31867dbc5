// Package hashivault has no hashivault:// in this build.
package hashivault
