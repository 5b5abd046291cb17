{{- define "imagate.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" }}{{ end -}}
{{- end }}

{{- define "imagate.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "imagate.labels" -}}
{{ include "imagate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "imagate.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end }}

{{/* The number of nodes. Several nodes without a common database would have different keys, records and limits. */}}
{{- define "imagate.replicas" -}}
{{- if .Values.database.existingSecret -}}
{{- if not .Values.masterKey.existingSecret }}{{ fail "database.existingSecret needs masterKey.existingSecret: all nodes must have the same master key" }}{{ end -}}
{{ .Values.replicas | default 2 }}
{{- else -}}
{{- if gt (int (.Values.replicas | default 1)) 1 }}{{ fail "replicas above 1 needs database.existingSecret: SQLite serves one node" }}{{ end -}}
1
{{- end -}}
{{- end }}

{{/* shutdown_delay, drain_timeout, 20 seconds for the last writes (src/gateway/serve/shutdown.rs), and a reserve. */}}
{{- define "imagate.gracePeriod" -}}
{{ add .Values.shutdownDelaySeconds .Values.drainSeconds 30 }}
{{- end }}

{{- define "imagate.secretVariable" -}}
- name: {{ .name }}
  valueFrom:
    secretKeyRef: {name: {{ .secret.existingSecret | quote }}, key: {{ .secret.key | quote }}}
{{- end }}

{{/* The file with the settings. Settings of the top level stand before the tables of `config`. */}}
{{- define "imagate.settings" -}}
shutdown_delay = "{{ .Values.shutdownDelaySeconds }}s"
trusted_proxies = {{ .Values.trustedProxies | toJson }}
{{ .Values.config }}
{{- end }}
