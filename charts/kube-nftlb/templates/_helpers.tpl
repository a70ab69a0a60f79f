{{/* Labels of every object. Takes a component, or "" for objects of none. */}}
{{- define "kube-nftlb.labels" -}}
{{ include "kube-nftlb.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "kube-nftlb.selector" -}}
app.kubernetes.io/name: kube-nftlb
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end }}

{{/* A manifest of the chart's files with the labels of all objects, and with annotations if there are any. */}}
{{- define "kube-nftlb.marked" -}}
{{- $metadata := dict "labels" (include "kube-nftlb.labels" (dict "root" .root "component" "") | fromYaml) }}
{{- with .annotations }}
{{- $_ := set $metadata "annotations" . }}
{{- end }}
{{- .text | replace "\nmetadata:\n" (printf "\nmetadata:\n%s\n" (toYaml $metadata | indent 2)) }}
{{- end }}

{{- define "kube-nftlb.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end }}
{{- end }}
{{- end }}

{{/* What the profile decides where no value does. */}}
{{- define "kube-nftlb.mode" -}}
{{ .Values.defaults.mode | default (ternary "dnat" "snat" (eq .Values.profile "kube-proxy")) }}
{{- end }}

{{- define "kube-nftlb.engine" -}}
{{ .Values.defaults.engine | default (ternary "auto" "nftlb" (eq .Values.profile "kube-proxy")) }}
{{- end }}

{{/* "true", or nothing. */}}
{{- define "kube-nftlb.proxyMode" -}}
{{- if kindIs "bool" .Values.agent.proxyMode | ternary .Values.agent.proxyMode (eq .Values.profile "kube-proxy") }}true{{ end }}
{{- end }}

{{/* nftlb needs what the farms that it serves do. */}}
{{- define "kube-nftlb.nftlbResources" -}}
{{- $requests := eq (include "kube-nftlb.engine" .) "nftlb" | ternary (dict "cpu" "160m" "memory" "256Mi") (dict "cpu" "20m" "memory" "64Mi") }}
{{- .Values.agent.nftlbResources | default (dict "requests" $requests) | toYaml }}
{{- end }}

{{/* Host and port of the API server as kubeadm publishes them, for `apiServer.host: auto`. */}}
{{- define "kube-nftlb.publishedApiServer" -}}
{{- $published := lookup "v1" "ConfigMap" "kube-public" "cluster-info" }}
{{- if not $published }}
{{- fail "apiServer.host is auto, but the ConfigMap kube-public/cluster-info, which kubeadm writes, cannot be read: give the address. (helm template never reads the cluster.)" }}
{{- end }}
{{- $server := (first ($published.data.kubeconfig | fromYaml).clusters).cluster.server | urlParse }}
{{- dict "host" $server.hostname "port" (regexFind "[0-9]+$" (regexFind ":[0-9]+$" $server.host) | default "443") | toJson }}
{{- end }}

{{/* Addresses of API servers for the operator and the agent; by default their Service. */}}
{{- define "kube-nftlb.apiServer" -}}
{{- $api := dict "host" .Values.apiServer.host "port" .Values.apiServer.port }}
{{- if eq $api.host "auto" }}
{{- $api = include "kube-nftlb.publishedApiServer" . | fromJson }}
{{- end }}
{{- $port := $api.port | int }}
{{- $hosts := concat (list $api.host) .Values.apiServer.hosts | compact | uniq }}
{{- with $hosts }}
- name: KUBERNETES_SERVICE_HOST
  value: {{ first . | quote }}
- name: KUBERNETES_SERVICE_PORT
  value: {{ $port | quote }}
{{- with rest . }}
{{- $further := list }}
{{- range . }}
{{- $further = append $further (printf (ternary "[%s]:%d" "%s:%d" (contains ":" .)) . $port) }}
{{- end }}
- name: KUBE_NFTLB_API_SERVERS
  value: {{ join "," $further | quote }}
{{- end }}
{{- end }}
{{- end }}

{{- define "kube-nftlb.log" -}}
- name: KUBE_NFTLB_LOG_LEVEL
  value: {{ .Values.log.level }}
- name: KUBE_NFTLB_LOG_FORMAT
  value: {{ .Values.log.format }}
{{- end }}

{{/* What a namespace may have. Operator and agents must agree on it. */}}
{{- define "kube-nftlb.limits" -}}
- name: KUBE_NFTLB_SERVICE_PORTS_MAX
  value: {{ .Values.limits.servicePorts | int | quote }}
- name: KUBE_NFTLB_NAMESPACE_FARMS_MAX
  value: {{ .Values.limits.namespaceFarms | int | quote }}
- name: KUBE_NFTLB_NAMESPACE_POLICIES_MAX
  value: {{ .Values.limits.namespacePolicies | int | quote }}
- name: KUBE_NFTLB_NAMESPACE_POLICY_RANGES_MAX
  value: {{ .Values.limits.namespacePolicyRanges | int | quote }}
- name: KUBE_NFTLB_FARM_ELEMENTS_MAX
  value: {{ .Values.limits.farmElements | int | quote }}
- name: KUBE_NFTLB_NAMESPACE_ELEMENTS_MAX
  value: {{ .Values.limits.namespaceElements | int | quote }}
- name: KUBE_NFTLB_NODE_ELEMENTS_MAX
  value: {{ .Values.limits.nodeElements | int | quote }}
{{- end }}

{{/* Addresses on which the pod listens: all, since Prometheus and the kubelet connect from elsewhere. */}}
{{- define "kube-nftlb.podAddress" -}}
- name: POD_IP
  valueFrom:
    fieldRef:
      fieldPath: status.podIP
- name: KUBE_NFTLB_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
{{- end }}

{{/* The service account token, for one container of a pod instead of all. */}}
{{- define "kube-nftlb.tokenMount" -}}
- name: token
  mountPath: /var/run/secrets/kubernetes.io/serviceaccount
  readOnly: true
{{- end }}

{{- define "kube-nftlb.tokenVolume" -}}
- name: token
  projected:
    sources:
      - serviceAccountToken:
          path: token
          expirationSeconds: 3607
      - configMap:
          name: kube-root-ca.crt
          items:
            - key: ca.crt
              path: ca.crt
      - downwardAPI:
          items:
            - path: namespace
              fieldRef:
                fieldPath: metadata.namespace
{{- end }}

{{- define "kube-nftlb.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- end }}

{{- /* Numbers and ranges, separated by commas. Helm reads an integer as a float, which it would print as one. */}}
{{- define "kube-nftlb.numbers" -}}
{{- $texts := list }}
{{- range . }}
{{- if kindIs "string" . }}{{ $texts = append $texts . }}{{ else }}{{ $texts = append $texts (printf "%d" (int64 .)) }}{{ end }}
{{- end }}
{{- join "," $texts }}
{{- end }}

{{/* Not empty if BIRD runs beside the agents. */}}
{{- define "kube-nftlb.bird" -}}
{{- with .Values.addresses }}{{ if and .enabled .bgp.enabled .bgp.bird.enabled }}true{{ end }}{{ end }}
{{- end }}
