{{/* Names and labels. */}}
{{- define "mcp-broker.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* At most 50 characters, so that the longest suffix fits. */}}
{{- define "mcp-broker.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- $name := include "mcp-broker.name" . }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "mcp-broker.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "mcp-broker.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* Selectors are immutable: only what never changes in the life of a release. */}}
{{- define "mcp-broker.selectorLabels" -}}
app.kubernetes.io/name: {{ include "mcp-broker.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "mcp-broker.brokerSelector" -}}
{{ include "mcp-broker.selectorLabels" . }}
app.kubernetes.io/component: broker
{{- end }}

{{- define "mcp-broker.redisSelector" -}}
{{ include "mcp-broker.selectorLabels" . }}
app.kubernetes.io/component: redis
{{- end }}

{{/* metadata of an object. Input: root, name, component, labels, annotations. */}}
{{- define "mcp-broker.metadata" -}}
{{- $root := .root }}
{{- $labels := mergeOverwrite (dict) (deepCopy $root.Values.commonLabels) (deepCopy (default (dict) .labels)) }}
{{- $fixed := dict "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_") "app.kubernetes.io/version" $root.Chart.AppVersion "app.kubernetes.io/managed-by" $root.Release.Service "app.kubernetes.io/component" .component }}
{{- $fixed = merge $fixed (include "mcp-broker.selectorLabels" $root | fromYaml) }}
{{- $annotations := mergeOverwrite (dict) (deepCopy $root.Values.commonAnnotations) (deepCopy (default (dict) .annotations)) -}}
name: {{ .name }}
namespace: {{ $root.Release.Namespace }}
labels:
  {{- toYaml (mergeOverwrite $labels $fixed) | nindent 2 }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "mcp-broker.image" -}}
{{- $image := .Values.image }}
{{- $name := ternary (printf "%s/%s" $image.registry $image.repository) $image.repository (ne $image.registry "") }}
{{- if $image.digest }}
{{- printf "%s@%s" $name $image.digest }}
{{- else }}
{{- printf "%s:%s" $name (default .Chart.AppVersion $image.tag) }}
{{- end }}
{{- end }}

{{/* Pods of the broker at most; text, so that it can be compared after `int`. */}}
{{- define "mcp-broker.replicasMax" -}}
{{- ternary .Values.autoscaling.maxReplicas .Values.replicaCount .Values.autoscaling.enabled | int }}
{{- end }}

{{- define "mcp-broker.replicasMin" -}}
{{- ternary .Values.autoscaling.minReplicas .Values.replicaCount .Values.autoscaling.enabled | int }}
{{- end }}

{{/* preStop, then SIGTERM and the grace of the broker, then the margin. */}}
{{- define "mcp-broker.terminationGracePeriodSeconds" -}}
{{- add .Values.shutdown.preStopSeconds .Values.shutdown.graceSeconds .Values.shutdown.marginSeconds }}
{{- end }}

{{/* `true` if callers from outside of the cluster can reach the broker. */}}
{{- define "mcp-broker.isExposed" -}}
{{- if or .Values.ingress.enabled .Values.httpRoute.enabled (ne .Values.service.type "ClusterIP") }}true{{ end }}
{{- end }}
