{{/* The pods of the broker: the template of the Deployment and of the StatefulSet. */}}
{{- define "mcp-broker.podTemplate" -}}
metadata:
  labels:
    {{- /* Without the version of the chart: a release that changes only the chart restarts no pod. */}}
    {{- toYaml (mergeOverwrite (dict) (deepCopy .Values.commonLabels) (deepCopy .Values.podLabels) (include "mcp-broker.brokerSelector" . | fromYaml)) | nindent 4 }}
  annotations:
    {{- /* A change of the settings or of a Secret of this chart replaces the pods; one of the backends does not. */}}
    checksum/config: {{ include "mcp-broker.settings" . | sha256sum }}
    {{- with include "mcp-broker.secretsChecksum" . }}
    checksum/secrets: {{ . }}
    {{- end }}
    kubectl.kubernetes.io/default-container: broker
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "mcp-broker.serviceAccountName" . }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ include "mcp-broker.terminationGracePeriodSeconds" . }}
  securityContext:
    {{- toYaml .Values.podSecurityContext | nindent 4 }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .Values.runtimeClassName }}
  runtimeClassName: {{ . }}
  {{- end }}
  {{- with .Values.schedulerName }}
  schedulerName: {{ . }}
  {{- end }}
  {{- with .Values.hostAliases }}
  hostAliases:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.dnsPolicy }}
  dnsPolicy: {{ . }}
  {{- end }}
  {{- with .Values.dnsConfig }}
  dnsConfig:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if and .Values.topologySpreadConstraints (gt (include "mcp-broker.replicasMax" . | int) 1) }}
  topologySpreadConstraints:
    {{- range .Values.topologySpreadConstraints }}
    {{- $own := dict }}
    {{- if not .labelSelector }}
    {{- /* Pods of each revision spread for themselves: otherwise an update leaves them uneven. */}}
    {{- $own = dict "labelSelector" (dict "matchLabels" (include "mcp-broker.brokerSelector" $ | fromYaml)) "matchLabelKeys" (list "pod-template-hash") }}
    {{- end }}
    - {{ toYaml (mergeOverwrite $own (deepCopy .)) | indent 6 | trim }}
    {{- end }}
  {{- end }}
  {{- with .Values.initContainers }}
  initContainers:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - {{ include "mcp-broker.container" . | indent 6 | trim }}
    {{- with .Values.extraContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    {{- include "mcp-broker.volumes" . | nindent 4 }}
{{- end }}

{{- define "mcp-broker.container" -}}
name: broker
image: {{ include "mcp-broker.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args: [serve, --config, /etc/mcp-broker/config/broker.yaml]
{{- include "mcp-broker.environment" . }}
ports:
  - {name: http, containerPort: 8000, protocol: TCP}
  {{- if .Values.metrics.enabled }}
  - {name: metrics, containerPort: {{ int .Values.metrics.port }}, protocol: TCP}
  {{- end }}
startupProbe:
  httpGet: {path: /startupz, port: http}
  {{- toYaml .Values.probes.startup | nindent 2 }}
livenessProbe:
  httpGet: {path: /livez, port: http}
  {{- toYaml .Values.probes.liveness | nindent 2 }}
readinessProbe:
  httpGet: {path: /readyz, port: http}
  {{- toYaml .Values.probes.readiness | nindent 2 }}
{{- if .Values.shutdown.preStopSeconds }}
lifecycle:
  preStop:
    {{- /* The image has no shell: Kubernetes itself sleeps, while load balancers take the pod out. */}}
    sleep: {seconds: {{ int .Values.shutdown.preStopSeconds }}}
{{- end }}
resources:
  {{- toYaml .Values.resources | nindent 2 }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
volumeMounts:
  - {name: config, mountPath: /etc/mcp-broker/config, readOnly: true}
  {{- if .Values.auth.enabled }}
  - {name: keys, mountPath: /etc/mcp-broker/keys, readOnly: true}
  {{- end }}
  {{- if eq .Values.storage "disk" }}
  - {name: data, mountPath: /var/lib/mcp-broker}
  {{- end }}
  {{- if or (include "mcp-broker.hasRedisUrlFile" .) (include "mcp-broker.redisSecret" .) }}
  - {name: redis-secret, mountPath: /etc/mcp-broker/redis, readOnly: true}
  {{- end }}
  {{- if and (eq .Values.storage "redis") .Values.redis.tls.caSecret }}
  - {name: redis-ca, mountPath: /etc/mcp-broker/redis-ca, readOnly: true}
  {{- end }}
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "mcp-broker.environment" -}}
{{- $env := list }}
{{- if eq .Values.storage "redis" }}
{{- $redis := .Values.redis }}
{{- if $redis.tls.caSecret }}
{{- $env = append $env (dict "name" "SSL_CERT_FILE" "value" (printf "/etc/mcp-broker/redis-ca/%s" $redis.tls.caSecretKey)) }}
{{- end }}
{{- end }}
{{- with concat $env .Values.extraEnv }}
env:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.extraEnvFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "mcp-broker.volumes" -}}
- name: config
  configMap:
    name: {{ include "mcp-broker.fullname" . }}
{{- if .Values.auth.enabled }}
- name: keys
  secret:
    secretName: {{ include "mcp-broker.keysSecret" . }}
    defaultMode: 0440
    items:
      - {key: {{ include "mcp-broker.adminKeyKey" . }}, path: admin-key}
      {{- if include "mcp-broker.hasMetricsToken" . }}
      - {key: {{ include "mcp-broker.metricsTokenKey" . }}, path: metrics-token}
      {{- end }}
{{- end }}
{{- if and (eq .Values.storage "disk") .Values.persistence.existingClaim }}
- name: data
  persistentVolumeClaim:
    claimName: {{ .Values.persistence.existingClaim }}
{{- end }}
{{- if include "mcp-broker.hasRedisUrlFile" . }}
- name: redis-secret
  secret:
    secretName: {{ .Values.redis.urlSecret.name }}
    defaultMode: 0440
    items:
      - {key: {{ .Values.redis.urlSecret.key }}, path: url}
{{- end }}
{{- with include "mcp-broker.redisSecret" . }}
- name: redis-secret
  secret:
    secretName: {{ . }}
    defaultMode: 0440
    items:
      - {key: {{ include "mcp-broker.redisSecretKey" $ }}, path: password}
{{- end }}
{{- if and (eq .Values.storage "redis") .Values.redis.tls.caSecret }}
- name: redis-ca
  secret:
    secretName: {{ .Values.redis.tls.caSecret }}
    items:
      - {key: {{ .Values.redis.tls.caSecretKey }}, path: {{ .Values.redis.tls.caSecretKey }}}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
