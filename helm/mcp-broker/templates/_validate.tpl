{{/*
Checks of several values together; values.schema.json checks each alone. Each message says what is wrong and what to do.
*/}}
{{- define "mcp-broker.validate" -}}
{{- $problems := list }}
{{- range list "Replicas" "Redis" "Exposure" "Config" "Backends" "Availability" "Metrics" }}
{{- $found := include (printf "mcp-broker.check%s" .) $ | trim }}
{{- range splitList "\n" $found }}
{{- with trim . }}
{{- $problems = append $problems . }}
{{- end }}
{{- end }}
{{- end }}
{{- if $problems }}
{{- fail (printf "\n\n%s\n" (join "\n" $problems)) }}
{{- end }}
{{- end }}

{{- define "mcp-broker.checkReplicas" -}}
{{- $max := include "mcp-broker.replicasMax" . | int }}
{{- if .Values.autoscaling.enabled }}
{{- if ne .Values.storage "redis" }}
autoscaling.enabled needs storage: redis, not {{ .Values.storage }}: with {{ .Values.storage }} a broker has one replica
{{- end }}
{{- if gt (int .Values.autoscaling.minReplicas) $max }}
autoscaling.minReplicas ({{ int .Values.autoscaling.minReplicas }}) is larger than autoscaling.maxReplicas ({{ $max }})
{{- end }}
{{- if and (not .Values.autoscaling.targetCPUUtilizationPercentage) (not .Values.autoscaling.targetConnectionsPerReplica) }}
autoscaling.enabled needs a target: set autoscaling.targetCPUUtilizationPercentage or autoscaling.targetConnectionsPerReplica
{{- end }}
{{- else if and (gt $max 1) (eq .Values.storage "memory") }}
replicaCount {{ $max }} needs storage: redis: with memory each replica would be a broker of its own
{{- else if and (gt $max 1) (eq .Values.storage "disk") }}
replicaCount {{ $max }} needs storage: redis: a data folder on disk belongs to one broker
{{- end }}
{{- if and (gt $max 1) (eq (toString .Values.config.redis_fallback) "memory") }}
config.redis_fallback: memory is for one replica: with {{ $max }} each of them would be a broker of its own while Redis is away
{{- end }}
{{- end }}

{{- define "mcp-broker.checkRedis" -}}
{{- $redis := .Values.redis }}
{{- if eq .Values.storage "redis" }}
{{- if and (not $redis.nodes) (not $redis.urlSecret.name) (not $redis.inChart.enabled) }}
storage: redis needs a Redis: set redis.nodes, redis.urlSecret.name, or for a trial redis.inChart.enabled
{{- end }}
{{- if and $redis.inChart.enabled (or $redis.nodes $redis.urlSecret.name $redis.existingSecret $redis.tls.enabled $redis.username) }}
redis.inChart.enabled excludes redis.nodes, redis.urlSecret, redis.existingSecret, redis.username and redis.tls, which are for a Redis that is run elsewhere
{{- end }}
{{- if and $redis.inChart.enabled .Values.config.wait_for_replicas }}
config.wait_for_replicas needs a Redis with replicas; the one of redis.inChart has none
{{- end }}
{{- if not (or $redis.inChart.enabled $redis.urlSecret.name) }}
{{- if and (eq $redis.kind "single") (gt (len $redis.nodes) 1) }}
redis.nodes has {{ len $redis.nodes }} addresses: set redis.kind to sentinel or cluster
{{- end }}
{{- if and (eq $redis.kind "sentinel") (not $redis.sentinelMaster) }}
redis.kind: sentinel needs redis.sentinelMaster, the name of the master
{{- end }}
{{- if and (eq $redis.kind "cluster") (ne (int $redis.database) 0) }}
redis.database must be 0 with redis.kind: cluster
{{- end }}
{{- end }}
{{- if and $redis.password $redis.existingSecret }}
redis.password and redis.existingSecret exclude each other
{{- end }}
{{- else if or $redis.inChart.enabled $redis.nodes $redis.urlSecret.name }}
redis.nodes, redis.urlSecret and redis.inChart.enabled have no effect with storage: {{ .Values.storage }}; set storage: redis
{{- end }}
{{- end }}

{{- define "mcp-broker.checkExposure" -}}
{{- if and (not .Values.auth.enabled) (include "mcp-broker.isExposed" .) }}
auth.enabled: false is not allowed with an Ingress, an HTTPRoute or a Service of the type {{ .Values.service.type }}: every caller from outside could do everything
{{- end }}
{{- if and .Values.auth.adminKey .Values.auth.existingSecret }}
auth.adminKey and auth.existingSecret exclude each other
{{- end }}
{{- if and .Values.ingress.enabled (not .Values.ingress.hosts) }}
ingress.enabled needs ingress.hosts: the broker answers to named hosts only
{{- end }}
{{- if and .Values.ingress.enabled (eq .Values.ingress.controller "alb") (ne .Values.ingress.path "/") }}
ingress.path other than / needs a controller that takes it away, and ALB does not: set ingress.path: /
{{- end }}
{{- if .Values.httpRoute.enabled }}
{{- if not .Values.httpRoute.hostnames }}
httpRoute.enabled needs httpRoute.hostnames: the broker answers to named hosts only
{{- end }}
{{- if not .Values.httpRoute.parentRefs }}
httpRoute.enabled needs httpRoute.parentRefs, the Gateway to attach to
{{- end }}
{{- end }}
{{- $hosts := include "mcp-broker.routeHosts" . | fromYamlArray }}
{{- if and (contains "*" (join "," $hosts)) (not (has "*" .Values.allowedHosts)) }}
a route has a host with a wildcard, which the broker cannot check: name each host, or set allowedHosts: ["*"]
{{- end }}
{{- end }}

{{- define "mcp-broker.checkConfig" -}}
{{- $chart := dict "host" "listenHost" "port" "service.port" "storage" "storage" "data_dir" "persistence" "redis_url" "redis" "redis_url_file" "redis.urlSecret" "redis_password_file" "redis.existingSecret" "enable_auth" "auth.enabled" "allow_anonymous" "auth.enabled" "admin_key" "auth.adminKey" "admin_key_file" "auth.existingSecret" "allowed_hosts" "allowedHosts" "cors_origins" "corsOrigins" "shutdown_grace" "shutdown.graceSeconds" "metrics_port" "metrics.port" "metrics_token_file" "metrics.token" }}
{{- range $key, $value := .Values.config }}
{{- with get $chart $key }}
config.{{ $key }} follows from other values of the chart: set {{ . }} instead
{{- end }}
{{- end }}
{{- end }}

{{- define "mcp-broker.checkBackends" -}}
{{- if and .Values.backends (dig "default" "backends" "" .Values.projects) }}
backends and projects.default.backends are the same project: put all of them into backends
{{- end }}
{{- range $path, $table := include "mcp-broker.backendTables" . | fromYaml }}
{{- if and $table.command $table.url }}
{{ $path }} has a command and a url: leave one out
{{- else if not (or $table.command $table.url) }}
{{ $path }} needs a command or a url
{{- end }}
{{- end }}
{{- end }}

{{- define "mcp-broker.checkAvailability" -}}
{{- $pdb := .Values.podDisruptionBudget }}
{{- $replicas := include "mcp-broker.replicasMin" . | int }}
{{- if and $pdb.enabled (gt (include "mcp-broker.replicasMax" . | int) 1) }}
{{- $hasMin := ne (toString $pdb.minAvailable) "" }}
{{- $hasMax := ne (toString $pdb.maxUnavailable) "" }}
{{- if eq $hasMin $hasMax }}
podDisruptionBudget needs exactly one of minAvailable and maxUnavailable; empty the other one
{{- else if or (and $hasMin (not (hasSuffix "%" (toString $pdb.minAvailable))) (ge (int $pdb.minAvailable) $replicas)) (and $hasMin (eq (toString $pdb.minAvailable) "100%")) (and $hasMax (has (toString $pdb.maxUnavailable) (list "0" "0%"))) }}
podDisruptionBudget lets no pod be evicted with {{ $replicas }} replicas: nodes could not be drained
{{- end }}
{{- end }}
{{- end }}

{{- define "mcp-broker.checkMetrics" -}}
{{- if and (not .Values.metrics.enabled) (or .Values.metrics.serviceMonitor.enabled .Values.metrics.podMonitor.enabled) }}
metrics.serviceMonitor and metrics.podMonitor need metrics.enabled
{{- end }}
{{- if and .Values.metrics.serviceMonitor.enabled .Values.metrics.podMonitor.enabled }}
metrics.serviceMonitor and metrics.podMonitor exclude each other: every figure would be scraped twice
{{- end }}
{{- if and .Values.metrics.enabled (eq (int .Values.metrics.port) 8000) }}
metrics.port must not be 8000, the port of the broker
{{- end }}
{{- if and .Values.metrics.token .Values.auth.existingSecret }}
metrics.token and auth.existingSecret exclude each other: put the token into that Secret
{{- end }}
{{- end }}
