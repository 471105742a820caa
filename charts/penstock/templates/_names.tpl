{{- /* Names, labels, images, security contexts. */}}

{{- define "penstock.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- /* (dict "root" $ "component" "operator"): what tells a component's pods from others. */}}
{{- define "penstock.selector" -}}
app.kubernetes.io/name: penstock
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "penstock.labels" -}}
{{ include "penstock.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: penstock
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* Whether a metric is of this release: of its namespace, or of one that it serves. */}}
{{- define "penstock.here" -}}
{{- if .Values.namespaces -}}
namespace=~{{ join "|" (prepend .Values.namespaces .Release.Namespace) | quote }}
{{- else -}}
namespace={{ .Release.Namespace | quote }}
{{- end }}
{{- end }}

{{- /* A component's pods that the operator makes: they carry no instance, and the namespace has one release. */}}
{{- define "penstock.operatorMade" -}}
app.kubernetes.io/name: penstock
app.kubernetes.io/component: {{ . }}
{{- end }}

{{- /* (dict "root" $ "image" .Values.images.operator) */}}
{{- define "penstock.image" -}}
{{- $repository := .image.repository }}
{{- with .root.Values.images.registry }}
{{- $repository = printf "%s/%s" . $repository }}
{{- end }}
{{- if .image.digest }}
{{- printf "%s@%s" $repository .image.digest }}
{{- else }}
{{- printf "%s:%s" $repository (default .root.Chart.AppVersion .image.tag) }}
{{- end }}
{{- end }}

{{- define "penstock.operatorImage" -}}
{{ include "penstock.image" (dict "root" . "image" .Values.images.operator) }}
{{- end }}

{{- define "penstock.podSecurity" -}}
runAsNonRoot: true
{{- if not .Values.podSecurity.anyUser }}
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
{{- end }}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "penstock.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "penstock.pullSecrets" -}}
{{- with .Values.images.pullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- end }}
