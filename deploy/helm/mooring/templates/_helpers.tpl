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

{{/* The metadata of an object with the name of the release: its labels, and annotations if any. */}}
{{- define "mooring.metadata" -}}
{{- $root := index . 0 }}
{{- $suffix := index . 1 }}
{{- $annotations := index . 2 }}
name: {{ include "mooring.suffixed" (list $root $suffix) }}
labels:
  {{- include "mooring.labels" $root | nindent 2 }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The name of the release with a suffix, which a long name keeps. */}}
{{- define "mooring.suffixed" -}}
{{- $name := include "mooring.fullname" (index . 0) }}
{{- with index . 1 }}
{{- $name = printf "%s-%s" ($name | trunc (sub 62 (len .) | int) | trimSuffix "-") . }}
{{- end }}
{{- $name }}
{{- end }}

{{/* The name of the headless Service, by which replicas find each other. */}}
{{- define "mooring.peers" -}}
{{- include "mooring.suffixed" (list . "peers") }}
{{- end }}

{{- define "mooring.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "mooring.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* The image, by its digest if there is one. */}}
{{- define "mooring.image" -}}
{{- $repository := required "image.repository: say where the image is, such as registry.example/mooring" .Values.image.repository }}
{{- if .Values.image.digest }}
{{- printf "%s@%s" $repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" $repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{/* 90% of a quantity of memory, in bytes. */}}
{{- define "mooring.memoryLimit" -}}
{{- $text := toString (ternary (int64 .) . (kindIs "float64" .)) }}
{{- $units := dict "" 1.0 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 }}
{{- $unit := regexFind "[A-Za-z]*$" $text }}
{{- if not (and (regexMatch "^[0-9]+([.][0-9]+)?[A-Za-z]*$" $text) (hasKey $units $unit)) }}
{{- fail (printf "resources.limits.memory: %q is not a number with k, M, G, T, Ki, Mi, Gi or Ti" $text) }}
{{- end }}
{{- mulf (trimSuffix $unit $text | float64) (get $units $unit) 0.9 | floor | int64 }}
{{- end }}

{{/* The names by which clients reach REST: the Service's, those of routes, and values.yaml's. */}}
{{- define "mooring.hosts" -}}
{{- $name := include "mooring.fullname" . }}
{{- $long := printf "%s.%s" $name .Release.Namespace }}
{{- $hosts := list $name $long (printf "%s.svc" $long) (printf "%s.svc.cluster.local" $long) }}
{{- if .Values.ingress.rest.enabled }}
{{- $hosts = concat $hosts .Values.ingress.rest.hosts }}
{{- end }}
{{- if .Values.httpRoute.enabled }}
{{- $hosts = concat $hosts .Values.httpRoute.hostnames }}
{{- end }}
{{- $own := dig "rest" "hosts" list .Values.config }}
{{- if not (kindIs "slice" $own) }}
{{- $own = regexSplit "\\s*[,\n]\\s*" (toString $own) -1 | compact }}
{{- end }}
{{- concat $hosts $own | uniq | toJson }}
{{- end }}

{{/* What the schema cannot say. */}}
{{- define "mooring.validate" -}}
{{- if not (or .Values.tlsSecret.name .Values.allowPlaintext) }}
{{- fail "tlsSecret.name: name a Secret with a certificate, or set allowPlaintext=true" }}
{{- end }}
{{- if and .Values.tlsSecret.clientAuthorityKey (not .Values.tlsSecret.name) }}
{{- fail "tlsSecret.clientAuthorityKey: needs tlsSecret.name" }}
{{- end }}
{{- if eq (dig "tls" "clientCertificates" "" .Values.config) "required" }}
{{- if not .Values.tlsSecret.clientAuthorityKey }}
{{- fail "tlsSecret.clientAuthorityKey: config.tls.clientCertificates=required needs it" }}
{{- end }}
{{- if not .Values.metrics.enabled }}
{{- fail "metrics.enabled: config.tls.clientCertificates=required needs it, for the probes" }}
{{- end }}
{{- end }}
{{- if not (or .Values.apiKeysSecret.name (dig "auth" "jwt" "issuer" "" .Values.config)
      .Values.tlsSecret.clientAuthorityKey .Values.allowUnauthenticated) }}
{{- fail "apiKeysSecret.name: name a Secret with API keys (mooring key api new), or set config.auth.jwt, tlsSecret.clientAuthorityKey or allowUnauthenticated=true" }}
{{- end }}
{{- if and .Values.httpRoute.enabled (not .Values.httpRoute.hostnames) (not .Values.tlsSecret.name)
      (not (dig "rest" "hosts" list .Values.config)) }}
{{- fail "httpRoute.hostnames: name the hosts by which clients reach the route. In plain text REST answers only for names that it knows, and 421 for others. If the Gateway's listener has the names, list them in config.rest.hosts; \"*\" there allows any" }}
{{- end }}
{{- if eq (int .Values.service.grpcPort) (int .Values.service.restPort) }}
{{- fail "service.restPort: is the same as service.grpcPort" }}
{{- end }}
{{- if and .Values.autoscaling.enabled (gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas)) }}
{{- fail "autoscaling.maxReplicas: is less than autoscaling.minReplicas" }}
{{- end }}
{{- if and .Values.metrics.serviceMonitor.enabled (not .Values.metrics.enabled) }}
{{- fail "metrics.serviceMonitor.enabled: needs metrics.enabled" }}
{{- end }}
{{- if and .Values.metrics.serviceMonitor.enabled .Values.networkPolicy.enabled (not .Values.networkPolicy.metrics) }}
{{- fail "networkPolicy.metrics: say from where Prometheus scrapes, or the policy keeps it out" }}
{{- end }}
{{- end }}

{{/* The configuration file: what values.yaml says, under what the chart itself decides. */}}
{{- define "mooring.config" -}}
{{- $own := dict
      "uriFile" (printf "/etc/mooring/uri/%s" .Values.uriSecret.key)
      "allowPlaintext" .Values.allowPlaintext
      "allowUnauthenticated" .Values.allowUnauthenticated
      "grpc" (dict "address" ":27080")
      "rest" (dict "address" ":8080" "hosts" (include "mooring.hosts" . | fromJsonArray))
      "handle" (dict "keysFile" (printf "/etc/mooring/handle-keys/%s" .Values.handleKeysSecret.key))
      "idempotency" (dict "keyFile" (printf "/etc/mooring/idempotency-key/%s" .Values.idempotencyKeySecret.key))
      "replica" (dict "address" ":27081" "peers" (list (printf "%s:27081" (include "mooring.peers" .))))
      "drain" (dict "linger" (printf "%ds" (int .Values.shutdown.lingerSeconds)) "timeout" (printf "%ds" (int .Values.shutdown.drainSeconds))) }}
{{- with .Values.tlsSecret }}
{{- if .name }}
{{- $tls := dict "certificateFile" "/etc/mooring/tls/tls.crt" "keyFile" "/etc/mooring/tls/tls.key" }}
{{- if .clientAuthorityKey }}
{{- $_ := set $tls "clientAuthorityFile" (printf "/etc/mooring/tls/%s" .clientAuthorityKey) }}
{{- end }}
{{- $_ := set $own "tls" $tls }}
{{- end }}
{{- end }}
{{- $mongodb := dict }}
{{- range $option, $key := dict "usernameFile" .Values.uriSecret.usernameKey "passwordFile" .Values.uriSecret.passwordKey }}
{{- if $key }}
{{- $_ := set $mongodb $option (printf "/etc/mooring/uri/%s" $key) }}
{{- end }}
{{- end }}
{{- if $mongodb }}
{{- $_ := set $own "mongodb" $mongodb }}
{{- end }}
{{- if .Values.apiKeysSecret.name }}
{{- $_ := set $own "auth" (dict "apiKeysFile" (printf "/etc/mooring/api-keys/%s" .Values.apiKeysSecret.key)) }}
{{- end }}
{{- if .Values.policy }}
{{- $_ := set $own "policy" (dict "file" "/etc/mooring/config/policy.cedar") }}
{{- end }}
{{- if .Values.metrics.enabled }}
{{- $_ := set $own "admin" (dict "address" ":27082") }}
{{- end }}
{{- mustMergeOverwrite (deepCopy .Values.config) $own | toYaml }}
{{- end }}

{{/* What the restricted Pod Security standard asks of a Pod. */}}
{{- define "mooring.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/* What it asks of a container. */}}
{{- define "mooring.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* The environment of the container. */}}
{{- define "mooring.env" -}}
# Where the other replicas reach this one. It is the only option that differs between Pods.
- name: MOORING_REPLICA_ADVERTISE
  valueFrom:
    fieldRef:
      fieldPath: status.podIP
{{- with (.Values.resources.limits | default dict).memory }}
- name: GOMEMLIMIT
  value: {{ include "mooring.memoryLimit" . | quote }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "mooring.volumeMounts" -}}
# As a file it stays as it is until the container starts again.
- name: config
  mountPath: /etc/mooring/mooring.yaml
  subPath: mooring.yaml
  readOnly: true
# As a directory it changes in a running Pod. It has the policy, and is there without one: a
# container that starts again while an upgrade goes on may need it.
- name: config
  mountPath: /etc/mooring/config
  readOnly: true
- name: uri
  mountPath: /etc/mooring/uri
  readOnly: true
- name: handle-keys
  mountPath: /etc/mooring/handle-keys
  readOnly: true
- name: idempotency-key
  mountPath: /etc/mooring/idempotency-key
  readOnly: true
{{- if .Values.tlsSecret.name }}
- name: tls
  mountPath: /etc/mooring/tls
  readOnly: true
{{- end }}
{{- if .Values.apiKeysSecret.name }}
- name: api-keys
  mountPath: /etc/mooring/api-keys
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The volumes. Secrets are mounted as directories, so that their changes reach the Pods. */}}
{{- define "mooring.volumes" -}}
- name: config
  configMap:
    name: {{ include "mooring.fullname" . }}
- name: uri
  secret:
    secretName: {{ required "uriSecret.name: name the Secret that holds the connection string" .Values.uriSecret.name }}
    defaultMode: 0440
    {{- with .Values.uriSecret.items }}
    items:
      {{- toYaml . | nindent 6 }}
    {{- end }}
- name: handle-keys
  secret:
    secretName: {{ required "handleKeysSecret.name: name the Secret that holds the keys that seal cursor tokens (mooring key new)" .Values.handleKeysSecret.name }}
    defaultMode: 0440
- name: idempotency-key
  secret:
    secretName: {{ required "idempotencyKeySecret.name: name the Secret that holds the key of calls with an Idempotency-Key (mooring key new; after an upgrade, the first of the handle keys)" .Values.idempotencyKeySecret.name }}
    defaultMode: 0440
{{- with .Values.tlsSecret.name }}
- name: tls
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- with .Values.apiKeysSecret.name }}
- name: api-keys
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
