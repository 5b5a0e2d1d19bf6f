{{- define "sluice.image" -}}
{{- $tag := .Values.image.tag -}}
{{- if not (or $tag .Values.image.digest) }}{{ $tag = .Chart.AppVersion }}{{ end -}}
{{- with .Values.image.registry }}{{ . }}/{{ end -}}
{{- .Values.image.repository -}}
{{- with $tag }}:{{ . }}{{ end -}}
{{- with .Values.image.digest }}@{{ . }}{{ end -}}
{{- end -}}
{{- /* What the operator reads. The reference of the image is that of its pod. */ -}}
{{- define "sluice.options" -}}
{{- $options := omit .Values "crds" "rancher" "global" -}}
{{- $_ := set $options "image" (pick .Values.image "pullPolicy") -}}
{{- toYaml $options -}}
{{- end -}}
