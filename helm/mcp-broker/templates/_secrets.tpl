{{/*
A secret value of this chart, in this order: the value that was set, the one that the cluster has from an earlier
installation, a new one. A new one is kept in `.Values` for the rest of the rendering, so that the Secret and the checksum of
the pods agree. Input: root, secret, key, section (a map of values), field.
*/}}
{{- define "mcp-broker.generated" -}}
{{- if not (get .section .field) }}
{{- $kept := dig "data" .key "" (default (dict) (lookup "v1" "Secret" .root.Release.Namespace .secret)) }}
{{- $_ := set .section .field (ternary (b64dec $kept) (randAlphaNum 43) (ne $kept "")) }}
{{- end }}
{{- get .section .field }}
{{- end }}

{{/* The Secret with the admin key and the token of the metrics. */}}
{{- define "mcp-broker.keysSecret" -}}
{{- default (printf "%s-keys" (include "mcp-broker.fullname" .)) .Values.auth.existingSecret }}
{{- end }}

{{- define "mcp-broker.adminKeyKey" -}}
{{- ternary .Values.auth.existingSecretAdminKey "admin-key" (ne .Values.auth.existingSecret "") }}
{{- end }}

{{- define "mcp-broker.metricsTokenKey" -}}
{{- ternary .Values.metrics.existingSecretTokenKey "metrics-token" (ne .Values.auth.existingSecret "") }}
{{- end }}

{{- define "mcp-broker.hasOwnKeys" -}}
{{- if and .Values.auth.enabled (not .Values.auth.existingSecret) }}true{{ end }}
{{- end }}

{{- define "mcp-broker.hasMetricsToken" -}}
{{- if and .Values.auth.enabled .Values.metrics.enabled }}true{{ end }}
{{- end }}

{{- define "mcp-broker.adminKey" -}}
{{- include "mcp-broker.generated" (dict "root" . "secret" (include "mcp-broker.keysSecret" .) "key" "admin-key" "section" .Values.auth "field" "adminKey") }}
{{- end }}

{{- define "mcp-broker.metricsToken" -}}
{{- include "mcp-broker.generated" (dict "root" . "secret" (include "mcp-broker.keysSecret" .) "key" "metrics-token" "section" .Values.metrics "field" "token") }}
{{- end }}

{{/* The Secret with the password of Redis; empty if there is none, or if it is in the URL. */}}
{{- define "mcp-broker.redisSecret" -}}
{{- if and (eq .Values.storage "redis") (not .Values.redis.urlSecret.name) }}
{{- if .Values.redis.existingSecret }}
{{- .Values.redis.existingSecret }}
{{- else if or .Values.redis.inChart.enabled .Values.redis.password }}
{{- printf "%s-redis" (include "mcp-broker.fullname" .) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "mcp-broker.redisSecretKey" -}}
{{- ternary .Values.redis.existingSecretKey "redis-password" (ne .Values.redis.existingSecret "") }}
{{- end }}

{{- define "mcp-broker.redisPassword" -}}
{{- include "mcp-broker.generated" (dict "root" . "secret" (include "mcp-broker.redisSecret" .) "key" "redis-password" "section" .Values.redis "field" "password") }}
{{- end }}

{{/* What rolls the pods when a Secret of this chart changes. */}}
{{- define "mcp-broker.secretsChecksum" -}}
{{- $all := list }}
{{- if include "mcp-broker.hasOwnKeys" . }}
{{- $all = append $all (include "mcp-broker.adminKey" .) }}
{{- if include "mcp-broker.hasMetricsToken" . }}
{{- $all = append $all (include "mcp-broker.metricsToken" .) }}
{{- end }}
{{- end }}
{{- if and (include "mcp-broker.redisSecret" .) (not .Values.redis.existingSecret) }}
{{- $all = append $all (include "mcp-broker.redisPassword" .) }}
{{- end }}
{{- if $all }}{{ join "\n" $all | sha256sum }}{{ end }}
{{- end }}
