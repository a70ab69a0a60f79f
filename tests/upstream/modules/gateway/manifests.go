// Package gateway runs the conformance tests of the Gateway API where listeners are of TCP and UDP only.
package gateway

import (
	"bytes"
	"errors"
	"io"
	"io/fs"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/gateway-api/conformance/utils/kubernetes"
	marshaler "sigs.k8s.io/yaml"
)

// An edit changes an object of a manifest, and returns whether it stays there.
type edit func(object *unstructured.Unstructured) (bool, error)

// The base has Gateways for tests of HTTP, and servers for them, which take time to start.
var needed = map[string]bool{"coredns": true, "tcp-backend": true, "app-backend-v1": true, "web-backend": true}

var edits = map[string]edit{
	"base/manifests.yaml": onlyNeeded,
	"tests/gateway-invalid-listeners-unsupported-protocol.yaml": listenToTCP,
	"tests/gateway-invalid-route-kind.yaml":                     listenToTCP,
	"tests/gateway-observed-generation-bump.yaml":               listenToTCP,
	"tests/gateway-optional-address-value.yaml":                 listenToTCP,
	"tests/gateway-static-addresses.yaml":                       listenToTCP,
	// Their only listeners are of HTTP or TLS, which are refused: nobody may wait for them.
	"tests/tcproute-invalid-non-tcp-listener.yaml": needNotBeReady,
	"tests/udproute-not-allowed-by-listeners.yaml": needNotBeReady,
}

// manifests are those of upstream, with the edits.
type manifests struct{ fs.FS }

// ReadFile returns a manifest after its edit.
func (m manifests) ReadFile(name string) ([]byte, error) {
	text, err := fs.ReadFile(m.FS, name)
	if change, found := edits[name]; err == nil && found {
		return edited(text, change)
	}
	return text, err
}

func edited(text []byte, change edit) ([]byte, error) {
	var result bytes.Buffer
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); errors.Is(err, io.EOF) {
			return result.Bytes(), nil
		} else if err != nil {
			return nil, err
		}
		if len(object.Object) == 0 {
			continue
		}
		stays, err := change(object)
		if err != nil {
			return nil, err
		}
		if !stays {
			continue
		}
		document, err := marshaler.Marshal(object.Object)
		if err != nil {
			return nil, err
		}
		result.WriteString("---\n")
		result.Write(document)
	}
}

func onlyNeeded(object *unstructured.Unstructured) (bool, error) {
	return object.GetKind() == "Namespace" || needed[object.GetName()], nil
}

func listenToTCP(object *unstructured.Unstructured) (bool, error) {
	listeners, found, err := unstructured.NestedSlice(object.Object, "spec", "listeners")
	if err != nil || !found {
		return true, err
	}
	for _, each := range listeners {
		listener := each.(map[string]any)
		if listener["protocol"] != "HTTP" {
			continue
		}
		listener["protocol"] = "TCP"
		delete(listener, "hostname")
		if err := admitTCPRoutes(listener); err != nil {
			return true, err
		}
	}
	return true, unstructured.SetNestedSlice(object.Object, listeners, "spec", "listeners")
}

func admitTCPRoutes(listener map[string]any) error {
	kinds, found, err := unstructured.NestedSlice(listener, "allowedRoutes", "kinds")
	if err != nil || !found {
		return err
	}
	for _, kind := range kinds {
		if route := kind.(map[string]any); route["kind"] == "HTTPRoute" {
			route["kind"] = "TCPRoute"
		}
	}
	return unstructured.SetNestedSlice(listener, kinds, "allowedRoutes", "kinds")
}

func needNotBeReady(object *unstructured.Unstructured) (bool, error) {
	if object.GetKind() == "Gateway" {
		object.SetAnnotations(map[string]string{kubernetes.GatewayExcludedFromReadinessChecks: "true"})
	}
	return true, nil
}
