{{- define "sluice.image" -}}
{{- $tag := .Values.image.tag -}}
{{- if not (or $tag .Values.image.digest) }}{{ $tag = .Chart.AppVersion }}{{ end -}}
{{- with .Values.image.registry }}{{ . }}/{{ end -}}
{{- .Values.image.repository -}}
{{- with $tag }}:{{ . }}{{ end -}}
{{- with .Values.image.digest }}@{{ . }}{{ end -}}
{{- end -}}
{{- /* What the operator reads. The reference of the image is that of its pod. */ -}}
{{- define "sluice.operator" -}}
app.kubernetes.io/component: sluice-operator
app.kubernetes.io/name: sluice
app.kubernetes.io/part-of: sluice
{{- end -}}
{{- define "sluice.options" -}}
{{- $options := omit .Values "crds" "rancher" "extraObjects" "global" -}}
{{- $_ := set $options "image" (pick .Values.image "pullPolicy") -}}
{{- $_ := set $options "monitoring" (omit .Values.monitoring "dashboards") -}}
{{- toYaml $options -}}
{{- end -}}
