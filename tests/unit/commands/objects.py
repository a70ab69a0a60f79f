"""Manifests for the tests of commands."""

SHOP = """
apiVersion: v1
kind: Service
metadata:
  name: web
  annotations:
    service.kubernetes.io/kube-nftlb-load-balancer-scheduler: weight
spec:
  selector: {app: web}
  clusterIP: 10.96.0.10
  ports: [{name: http, port: 80}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
---
apiVersion: v1
kind: List
items:
- apiVersion: discovery.k8s.io/v1
  kind: EndpointSlice
  metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
  addressType: IPv4
  ports: [{name: http, port: 8080, protocol: TCP}]
  endpoints:
  - {addresses: [10.244.1.2], targetRef: {kind: Pod, name: web-a}}
  - {addresses: [10.244.1.3], targetRef: {kind: Pod, name: web-b}}
"""

THIEF = """
apiVersion: kube-nftlb.io/v1alpha1
kind: NftlbFarm
metadata: {name: thief}
spec: {addresses: [{ip: 10.96.0.10, ports: 79-81}]}
"""

BAD_FARM = """
apiVersion: kube-nftlb.io/v1alpha1
kind: NftlbFarm
metadata: {name: bad}
spec: {addresses: [{ip: 10.96.0.11, ports: "80"}], scheduler: "rr; flush ruleset"}
"""

BY_HAND = """
apiVersion: kube-nftlb.io/v1alpha1
kind: NftlbFarm
metadata: {name: by-hand, namespace: shop, uid: some-uid, generation: 7}
spec: {addresses: [{ip: 10.96.0.12, ports: "80"}], backends: [{name: a, ip: 10.244.1.9, port: 80}]}
"""
