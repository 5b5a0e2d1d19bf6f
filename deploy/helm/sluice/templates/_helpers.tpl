{{- define "sluice.image" -}}
{{- $tag := .Values.image.tag -}}
{{- if not (or $tag .Values.image.digest) }}{{ $tag = .Chart.AppVersion }}{{ end -}}
{{- with .Values.image.registry }}{{ . }}/{{ end -}}
{{- .Values.image.repository -}}
{{- with $tag }}:{{ . }}{{ end -}}
{{- with .Values.image.digest }}@{{ . }}{{ end -}}
{{- end -}}
