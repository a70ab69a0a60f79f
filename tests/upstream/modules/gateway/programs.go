//go:build tools

// Package gateway names the programs beside the tests, so that `go mod tidy` pins what they need.
package gateway

import _ "sigs.k8s.io/gateway-api/conformance/echo-basic"
