//go:build programs

// Package programs names the main package that is built, so that the module's dependencies stay pinned.
package programs

import _ "helm.sh/helm/v3/cmd/helm"
