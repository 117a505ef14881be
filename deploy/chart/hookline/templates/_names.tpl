{{- define "hookline.labels" -}}
app.kubernetes.io/name: hookline
app.kubernetes.io/component: operator
{{- end }}

{{- /* A role and who has it. Without a namespace it holds in all of them. */}}
{{- define "hookline.role" -}}
{{- $kind := ternary "Role" "ClusterRole" (not (empty .namespace)) -}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "hookline.labels" . | nindent 4 }}
rules:
  {{- .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}Binding
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "hookline.labels" . | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $kind }}
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: hookline-operator
    namespace: {{ .account }}
{{ end }}
