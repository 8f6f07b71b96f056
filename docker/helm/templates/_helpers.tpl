{{- define "headgate.labels" -}}
app.kubernetes.io/name: headgate
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "headgate.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* The settings as the user wrote them: a text as it is, a map as YAML. Helm merges a default under a user's values, so a
default here would be a setting that nobody wrote: there is none. */}}
{{- define "headgate.settings" -}}
{{- $settings := required "settings is empty: pass your file (--set-file settings=headgate.yaml), or write its content below settings: in your values" .Values.settings -}}
{{- if kindIs "string" $settings }}{{ $settings }}{{ else }}{{ toYaml $settings }}{{ end -}}
{{- end -}}

{{/* Where the parts listen: the settings' `http`, with the chart's defaults. */}}
{{- define "headgate.http" -}}
{{- $settings := include "headgate.settings" . | fromYaml -}}
{{- with $settings.Error }}{{ fail (printf "settings is no YAML map: %s" .) }}{{ end -}}
{{- $http := $settings.http | default dict -}}
{{- $host := $http.host | default "0.0.0.0" -}}
{{- if regexMatch "^(127[.]|::1$|localhost$)" $host -}}
{{- fail (printf "settings: http.host is %s, which neither Kubernetes' probes nor Prometheus nor the services reach: leave it out" $host) -}}
{{- end -}}
{{- $port := $http.port | default 9408 | int -}}
host: {{ $host | quote }}
port: {{ $port }}
probesPort: {{ $http.probes_port | default (add $port 1) | int }}
hostNames: {{ $http.host_names | default list | toJson }}
scheme: {{ ternary "https" "http" (hasKey ($http.access | default dict) "cert_file") }}
{{- end -}}

{{/* A list of all pods, and a part's own after it; takes (list root part key). */}}
{{- define "headgate.list" -}}
{{- $key := index . 2 -}}
{{- with concat (get (index . 0).Values $key | default list) (get (index . 1) $key | default list) }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{/* A map of all pods, with a part's own keys in it; takes (list root part key). */}}
{{- define "headgate.map" -}}
{{- $key := index . 2 -}}
{{- with mergeOverwrite (deepCopy (get (index . 0).Values $key | default dict)) (get (index . 1) $key | default dict) }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{/* The pod of a part or of a job. Takes root; own, the part's values; component, its label; args; configMap; and
startupFailures, how often a part's startup probe may fail: without it the pod is a job's. */}}
{{- define "headgate.pod" -}}
{{- $root := .root -}}
{{- $own := .own -}}
{{- $http := include "headgate.http" $root | fromYaml -}}
metadata:
  labels:
    {{- include "headgate.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
  annotations:
    # Changed settings roll the pods; the query goes on from its checkpoint.
    headgate.io/settings: {{ include "headgate.settings" $root | sha256sum }}
    {{- with include "headgate.map" (list $root $own "podAnnotations") }}{{ nindent 4 . }}{{ end }}
spec:
  {{- with $root.Values.serviceAccount.name }}
  serviceAccountName: {{ . }}
  {{- end }}
  automountServiceAccountToken: {{ $root.Values.serviceAccount.automountToken }}
  enableServiceLinks: false # a service named headgate-… would have variables that look like settings
  {{- if .startupFailures }}
  terminationGracePeriodSeconds: 60
  {{- else }}
  restartPolicy: Never
  {{- end }}
  {{- with $root.Values.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with include "headgate.map" (list $root $own "nodeSelector") }}
  nodeSelector: {{- . | nindent 4 }}
  {{- end }}
  {{- with include "headgate.list" (list $root $own "tolerations") }}
  tolerations: {{- . | nindent 4 }}
  {{- end }}
  {{- with include "headgate.map" (list $root $own "affinity") }}
  affinity: {{- . | nindent 4 }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    seccompProfile: {type: RuntimeDefault}
  containers:
    - name: headgate
      image: {{ include "headgate.image" $root }}
      args: {{- toYaml (concat .args (list "--settings" "/etc/headgate/headgate.yaml")) | nindent 8 }}
      {{- with include "headgate.list" (list $root $own "envFrom") }}
      envFrom: {{- . | nindent 8 }}
      {{- end }}
      env:
        - {name: HEADGATE_HTTP__HOST, value: {{ $http.host | quote }}}
        - {name: HEADGATE_HTTP__PORT, value: {{ $http.port | quote }}}
        - {name: HEADGATE_HTTP__PROBES_PORT, value: {{ $http.probesPort | quote }}}
        {{- if $root.Values.ingress.enabled }}
        - name: HEADGATE_HTTP__HOST_NAMES
          value: {{ append $http.hostNames $root.Values.ingress.host | uniq | toJson | quote }}
        {{- end }}
        {{- with include "headgate.list" (list $root $own "env") }}{{ nindent 8 . }}{{ end }}
      resources: {{- toYaml $own.resources | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      {{- if .startupFailures }}
      ports:
        - {name: http, containerPort: {{ $http.port }}}
        - {name: probes, containerPort: {{ $http.probesPort }}}
      startupProbe:
        httpGet: {path: /-/healthy, port: probes}
        periodSeconds: 5
        failureThreshold: {{ .startupFailures }}
      livenessProbe:
        httpGet: {path: /-/healthy, port: probes}
        periodSeconds: 15
        timeoutSeconds: 5
        failureThreshold: 4
      readinessProbe:
        httpGet: {path: /-/ready, port: probes}
        periodSeconds: 10
        timeoutSeconds: 5
      {{- end }}
      volumeMounts:
        - {name: settings, mountPath: /etc/headgate, readOnly: true}
        - {name: data, mountPath: /var/lib/headgate}
        - {name: tmp, mountPath: /tmp}
        {{- with include "headgate.list" (list $root $own "volumeMounts") }}{{ nindent 8 . }}{{ end }}
  volumes:
    - name: settings
      configMap: {name: {{ .configMap }}}
    - name: tmp
      emptyDir: {}
    {{- if ne .component "decide" }}
    - name: data
      emptyDir: {}
    {{- end }}
    {{- with include "headgate.list" (list $root $own "volumes") }}{{ nindent 4 . }}{{ end }}
{{- end -}}
