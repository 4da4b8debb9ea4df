{{- define "mooring.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "mooring.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "mooring.name" .) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "mooring.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "mooring.selectorLabels" -}}
app.kubernetes.io/name: {{ include "mooring.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "mooring.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "mooring.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* The name of the headless Service, by which replicas find each other. */}}
{{- define "mooring.peers" -}}
{{- printf "%s-peers" (include "mooring.fullname" . | trunc 57 | trimSuffix "-") }}
{{- end }}

{{/* The names by which clients reach the Service, and those that values.yaml adds. */}}
{{- define "mooring.hosts" -}}
{{- $name := include "mooring.fullname" . }}
{{- $long := printf "%s.%s" $name .Release.Namespace }}
{{- $own := list $name $long (printf "%s.svc" $long) (printf "%s.svc.cluster.local" $long) }}
{{- concat $own (dig "rest" "hosts" list .Values.config) | toJson }}
{{- end }}

{{/* The configuration file: what values.yaml says, under what the chart itself decides. */}}
{{- define "mooring.config" -}}
{{- if not (or .Values.tlsSecret.name .Values.allowPlaintext) }}
{{- fail "tlsSecret.name: name a Secret with a certificate, or set allowPlaintext=true" }}
{{- end }}
{{- if and .Values.tlsSecret.clientAuthorityKey (not .Values.tlsSecret.name) }}
{{- fail "tlsSecret.clientAuthorityKey: needs tlsSecret.name" }}
{{- end }}
{{- if not (or .Values.apiKeysSecret.name (dig "auth" "jwt" "issuer" "" .Values.config)
      .Values.tlsSecret.clientAuthorityKey .Values.allowUnauthenticated) }}
{{- fail "apiKeysSecret.name: name a Secret with API keys (mooring key api new), or set config.auth.jwt, tlsSecret.clientAuthorityKey or allowUnauthenticated=true" }}
{{- end }}
{{- $own := dict
      "uriFile" (printf "/etc/mooring/uri/%s" .Values.uriSecret.key)
      "allowPlaintext" .Values.allowPlaintext
      "allowUnauthenticated" .Values.allowUnauthenticated
      "grpc" (dict "address" ":27080")
      "rest" (dict "address" ":8080" "hosts" (include "mooring.hosts" . | fromJsonArray))
      "handle" (dict "keysFile" (printf "/etc/mooring/handle-keys/%s" .Values.handleKeysSecret.key))
      "replica" (dict "address" ":27081" "peers" (list (printf "%s:27081" (include "mooring.peers" .))))
      "drain" (dict "timeout" (printf "%ds" (int .Values.shutdown.drainSeconds))) }}
{{- with .Values.tlsSecret }}
{{- if .name }}
{{- $tls := dict "certificateFile" "/etc/mooring/tls/tls.crt" "keyFile" "/etc/mooring/tls/tls.key" }}
{{- if .clientAuthorityKey }}
{{- $_ := set $tls "clientAuthorityFile" (printf "/etc/mooring/tls/%s" .clientAuthorityKey) }}
{{- end }}
{{- $_ := set $own "tls" $tls }}
{{- end }}
{{- end }}
{{- if .Values.apiKeysSecret.name }}
{{- $_ := set $own "auth" (dict "apiKeysFile" (printf "/etc/mooring/api-keys/%s" .Values.apiKeysSecret.key)) }}
{{- end }}
{{- if .Values.policy }}
{{- $_ := set $own "policy" (dict "file" "/etc/mooring/config/policy.cedar") }}
{{- end }}
{{- mustMergeOverwrite (deepCopy .Values.config) $own | toYaml }}
{{- end }}
