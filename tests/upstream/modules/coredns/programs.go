//go:build programs

// Package coredns names the package that is built, so that the module's dependencies stay pinned.
package coredns

import _ "github.com/coredns/coredns"
