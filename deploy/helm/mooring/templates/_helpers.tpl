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

{{/* The configuration file: what values.yaml says, under what the chart itself decides. */}}
{{- define "mooring.config" -}}
{{- $own := dict
      "uriFile" (printf "/etc/mooring/uri/%s" .Values.uriSecret.key)
      "grpc" (dict "address" ":27080")
      "rest" (dict "address" ":8080")
      "handle" (dict "keysFile" (printf "/etc/mooring/handle-keys/%s" .Values.handleKeysSecret.key))
      "replica" (dict "address" ":27081" "peers" (list (printf "%s:27081" (include "mooring.peers" .))))
      "drain" (dict "timeout" (printf "%ds" (int .Values.shutdown.drainSeconds))) }}
{{- if .Values.tlsSecret.name }}
{{- $_ := set $own "tls" (dict "certificateFile" "/etc/mooring/tls/tls.crt" "keyFile" "/etc/mooring/tls/tls.key") }}
{{- end }}
{{- mustMergeOverwrite (deepCopy .Values.config) $own | toYaml }}
{{- end }}
