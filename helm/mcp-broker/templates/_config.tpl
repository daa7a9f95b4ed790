{{/* The configuration file of the broker. */}}
{{- define "mcp-broker.config" -}}
{{- include "mcp-broker.settings" . }}
{{- with include "mcp-broker.backends" . }}
{{ . }}
{{- end }}
{{- end }}

{{/* Makes the whole numbers of a map whole: Helm reads them as floating-point ones and would write a million as 1e+06. */}}
{{- define "mcp-broker.makeWhole" -}}
{{- range $key, $value := . }}
{{- if kindIs "map" $value }}
{{- include "mcp-broker.makeWhole" $value }}
{{- else if and (kindIs "float64" $value) (eq (floor $value) $value) }}
{{- $_ := set $ $key (int64 $value) }}
{{- end }}
{{- end }}
{{- end }}

{{/* The tables of the backends; empty if there are none. The broker reads a change of them while it runs. */}}
{{- define "mcp-broker.backends" -}}
{{- $tables := dict }}
{{- range $name := list "backends" "projects" }}
{{- with get $.Values $name }}
{{- $_ := set $tables $name (deepCopy .) }}
{{- end }}
{{- end }}
{{- include "mcp-broker.makeWhole" $tables }}
{{- with $tables }}
{{- toYaml . }}
{{- end }}
{{- end }}

{{/* The tables of all projects by their path, as a map in YAML. */}}
{{- define "mcp-broker.backendTables" -}}
{{- $all := dict }}
{{- range $name, $table := .Values.backends }}
{{- $_ := set $all (printf "backends.%s" $name) $table }}
{{- end }}
{{- range $id, $project := .Values.projects }}
{{- range $name, $table := $project.backends }}
{{- $_ := set $all (printf "projects.%s.backends.%s" $id $name) $table }}
{{- end }}
{{- end }}
{{- toYaml $all }}
{{- end }}

{{/* Ports of the backends at a URL for the NetworkPolicy, as a list in YAML. */}}
{{- define "mcp-broker.backendPorts" -}}
{{- $ports := list }}
{{- range include "mcp-broker.backendTables" . | fromYaml }}
{{- if not .disabled }}
{{- $authority := regexFind "^(http|https|ws|wss)://[^/?#]+" (default "" .url) }}
{{- if $authority }}
{{- $named := regexFind ":[0-9]+$" $authority | trimPrefix ":" }}
{{- $ports = append $ports (int (default (ternary "443" "80" (regexMatch "^(https|wss):" $authority)) $named)) }}
{{- end }}
{{- end }}
{{- end }}
{{- toYaml (uniq $ports | sortAlpha) }}
{{- end }}

{{/* The settings in that file. */}}
{{- define "mcp-broker.settings" -}}
{{- $config := deepCopy (default (dict) .Values.config) }}
{{- include "mcp-broker.makeWhole" $config }}
{{- $chart := dict "host" .Values.listenHost "port" 8000 "storage" .Values.storage "enable_auth" .Values.auth.enabled "allowed_hosts" (include "mcp-broker.allowedHosts" . | fromYamlArray) "cors_origins" (include "mcp-broker.corsOrigins" . | fromYamlArray) "shutdown_grace" (printf "%ds" (int .Values.shutdown.graceSeconds)) }}
{{- /* The side behind closes idle connections later than the one in front. Its default suffices for an hour. */}}
{{- if and (gt (int .Values.routeTimeoutSeconds) 3600) (not (hasKey $config "keep_alive")) }}
{{- $_ := set $chart "keep_alive" (printf "%ds" (add 60 (int .Values.routeTimeoutSeconds))) }}
{{- end }}
{{- if .Values.auth.enabled }}
{{- $_ := set $chart "admin_key_file" "/etc/mcp-broker/keys/admin-key" }}
{{- else }}
{{- $_ := set $chart "allow_anonymous" true }}
{{- end }}
{{- if eq .Values.storage "disk" }}
{{- /* A folder below the volume: the broker makes it and owns it, and the volume's own folder belongs to root. */}}
{{- $_ := set $chart "data_dir" "/var/lib/mcp-broker/data" }}
{{- end }}
{{- if include "mcp-broker.hasRedisUrlFile" . }}
{{- $_ := set $chart "redis_url_file" "/etc/mcp-broker/redis/url" }}
{{- else if eq .Values.storage "redis" }}
{{- $_ := set $chart "redis_url" (include "mcp-broker.redisUrl" .) }}
{{- if include "mcp-broker.redisSecret" . }}
{{- $_ := set $chart "redis_password_file" "/etc/mcp-broker/redis/password" }}
{{- end }}
{{- end }}
{{- if .Values.metrics.enabled }}
{{- $_ := set $chart "metrics_port" (int .Values.metrics.port) }}
{{- if include "mcp-broker.hasMetricsToken" . }}
{{- $_ := set $chart "metrics_token_file" "/etc/mcp-broker/keys/metrics-token" }}
{{- end }}
{{- end }}
{{- toYaml (mergeOverwrite $config $chart) }}
{{- end }}

{{/* The largest message in MiB, for the limits of proxies. */}}
{{- define "mcp-broker.maxPayloadMb" -}}
{{- default 10 .Values.config.max_payload_mb | toString | trimSuffix "MiB" | int }}
{{- end }}

{{/* Host names of the routes, as a list in YAML. */}}
{{- define "mcp-broker.routeHosts" -}}
{{- $hosts := list }}
{{- if .Values.ingress.enabled }}
{{- $hosts = concat $hosts .Values.ingress.hosts }}
{{- end }}
{{- if .Values.httpRoute.enabled }}
{{- $hosts = concat $hosts .Values.httpRoute.hostnames }}
{{- end }}
{{- toYaml (uniq $hosts) }}
{{- end }}

{{- define "mcp-broker.allowedHosts" -}}
{{- if has "*" .Values.allowedHosts }}
{{- toYaml (list "*") }}
{{- else }}
{{- $name := include "mcp-broker.fullname" . }}
{{- $namespace := .Release.Namespace }}
{{- $service := list $name (printf "%s.%s" $name $namespace) (printf "%s.%s.svc" $name $namespace) (printf "%s.%s.svc.%s" $name $namespace .Values.clusterDomain) }}
{{- toYaml (concat (list "localhost" "127.0.0.1" "::1") $service (include "mcp-broker.routeHosts" . | fromYamlArray) .Values.allowedHosts | uniq) }}
{{- end }}
{{- end }}

{{/* Origins of the routes, as a list in YAML. A host with a wildcard is none. */}}
{{- define "mcp-broker.routeOrigins" -}}
{{- $origins := list }}
{{- if .Values.ingress.enabled }}
{{- $secured := list }}
{{- range .Values.ingress.tls }}
{{- $secured = concat $secured (default (list) .hosts) }}
{{- end }}
{{- range .Values.ingress.hosts }}
{{- $origins = append $origins (printf "%s://%s" (ternary "https" "http" (has . $secured)) .) }}
{{- end }}
{{- end }}
{{- if .Values.httpRoute.enabled }}
{{- $scheme := ternary "https" "http" .Values.httpRoute.tls }}
{{- range .Values.httpRoute.hostnames }}
{{- $origins = append $origins (printf "%s://%s" $scheme .) }}
{{- end }}
{{- end }}
{{- $named := list }}
{{- range $origins }}
{{- if not (contains "*" .) }}
{{- $named = append $named . }}
{{- end }}
{{- end }}
{{- toYaml (uniq $named) }}
{{- end }}

{{- define "mcp-broker.corsOrigins" -}}
{{- toYaml (concat (include "mcp-broker.routeOrigins" . | fromYamlArray) .Values.corsOrigins | uniq) }}
{{- end }}

{{/* Whether the broker reads the URL of Redis from a file of a Secret. */}}
{{- define "mcp-broker.hasRedisUrlFile" -}}
{{- if and (eq .Values.storage "redis") .Values.redis.urlSecret.name }}true{{ end }}
{{- end }}

{{/* The URL of Redis, without its password. */}}
{{- define "mcp-broker.redisUrl" -}}
{{- $redis := .Values.redis }}
{{- $nodes := ternary (list (printf "%s-redis:6379" (include "mcp-broker.fullname" .))) $redis.nodes $redis.inChart.enabled }}
{{- $kind := ternary "single" $redis.kind $redis.inChart.enabled }}
{{- $scheme := ternary "rediss" "redis" $redis.tls.enabled }}
{{- if ne $kind "single" }}
{{- $scheme = printf "%s+%s" $scheme $kind }}
{{- end }}
{{- $user := "" }}
{{- if $redis.username }}
{{- $user = printf "%s@" $redis.username }}
{{- end }}
{{- $path := "" }}
{{- if eq $kind "sentinel" }}
{{- $path = printf "/%s" $redis.sentinelMaster }}
{{- end }}
{{- if ne $kind "cluster" }}
{{- $path = printf "%s/%d" $path (int $redis.database) }}
{{- end }}
{{- printf "%s://%s%s%s" $scheme $user (join "," $nodes) $path }}
{{- end }}

{{/* Ports of Redis for the NetworkPolicy, as a list in YAML. */}}
{{- define "mcp-broker.redisPorts" -}}
{{- $redis := .Values.redis }}
{{- $ports := list }}
{{- if .Values.networkPolicy.redisPorts }}
{{- range .Values.networkPolicy.redisPorts }}
{{- $ports = append $ports (int .) }}
{{- end }}
{{- else if $redis.inChart.enabled }}
{{- $ports = list 6379 }}
{{- else }}
{{- range $redis.nodes }}
{{- $port := regexFind ":[0-9]+$" . | trimPrefix ":" }}
{{- $ports = append $ports (int (default (ternary "26379" "6379" (eq $redis.kind "sentinel")) $port)) }}
{{- end }}
{{- if or (eq $redis.kind "sentinel") $redis.urlSecret.name }}
{{- $ports = append $ports 6379 }}
{{- end }}
{{- if $redis.urlSecret.name }}
{{- $ports = append $ports 26379 }}
{{- end }}
{{- end }}
{{- toYaml (uniq $ports) }}
{{- end }}
