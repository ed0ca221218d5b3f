package githubtest

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Generated is a payload made from GitHub's own schema of it.
type Generated struct {
	// Schema is the schema's name: issues-labeled.
	Schema string
	// Event is the X-GitHub-Event that it is sent with.
	Event string
	// Variant is full (everything), required (only what must be there) or null
	// (null wherever the schema allows it).
	Variant string
	Body    []byte
}

// variants of a generated payload.
var variants = []string{"full", "null", "required"}

// Generate returns a payload of each variant for every webhook schema in
// @octokit/openapi-webhooks. Ids and numbers are the same in all of them: 7; of
// listed values the variants take the first, the last and one in between.
func Generate(tb testing.TB) []Generated {
	tb.Helper()
	var doc struct {
		Webhooks map[string]struct {
			Post struct {
				// OperationID is issues/labeled: the event and its action.
				OperationID string `json:"operationId"` //nolint:tagliatelle // OpenAPI's name
				RequestBody struct {
					Content map[string]struct {
						Schema map[string]any `json:"schema"`
					} `json:"content"`
				} `json:"requestBody"` //nolint:tagliatelle // OpenAPI's name
			} `json:"post"`
		} `json:"webhooks"`
		Components struct {
			Schemas map[string]map[string]any `json:"schemas"`
		} `json:"components"`
	}
	readJSON(tb, filepath.Join(nodeModules(tb), "@octokit", "openapi-webhooks", "generated", "api.github.com.json"), &doc)
	var out []Generated
	for _, name := range slices.Sorted(maps.Keys(doc.Webhooks)) {
		hook := doc.Webhooks[name]
		event, _, _ := strings.Cut(hook.Post.OperationID, "/")
		event = strings.ReplaceAll(event, "-", "_")
		schema := hook.Post.RequestBody.Content["application/json"].Schema
		if schema == nil || event == "" {
			tb.Fatalf("webhook %s has no schema or no event name", name)
		}
		for _, v := range variants {
			g := generator{schemas: doc.Components.Schemas, variant: v}
			body, err := json.Marshal(g.value(schema, 0))
			if err != nil {
				tb.Fatal(err)
			}
			out = append(out, Generated{Schema: name, Event: event, Variant: v, Body: body})
		}
	}
	return out
}

type generator struct {
	schemas map[string]map[string]any
	variant string
}

// maxDepth ends what refers to itself.
const maxDepth = 12

func (g generator) value(s map[string]any, depth int) any {
	if ref, ok := s["$ref"].(string); ok {
		return g.value(g.schemas[ref[strings.LastIndex(ref, "/")+1:]], depth+1)
	}
	if depth > maxDepth || g.variant == "null" && nullable(s) {
		return nil
	}
	if enum, ok := s["enum"].([]any); ok && len(enum) > 0 {
		return enum[slices.Index(variants, g.variant)*(len(enum)-1)/(len(variants)-1)]
	}
	if all, ok := s["allOf"].([]any); ok {
		merged := map[string]any{}
		for _, one := range all {
			m, isMap := one.(map[string]any)
			if !isMap {
				continue
			}
			if part, isObject := g.value(m, depth+1).(map[string]any); isObject {
				maps.Copy(merged, part)
			}
		}
		return merged
	}
	for _, key := range []string{"oneOf", "anyOf"} {
		if some, ok := s[key].([]any); ok && s["properties"] == nil {
			for _, one := range some {
				if m, isMap := one.(map[string]any); isMap && m["type"] != "null" {
					return g.value(m, depth+1)
				}
			}
		}
	}
	switch kind(s) {
	case "object":
		return g.object(s, depth)
	case "array":
		items, ok := s["items"].(map[string]any)
		if !ok || g.variant != "full" {
			return []any{}
		}
		return []any{g.value(items, depth+1)}
	case "boolean":
		return false
	case "integer", "number":
		return 7
	default:
		return text(s)
	}
}

func (g generator) object(s map[string]any, depth int) any {
	required := map[string]bool{}
	list, _ := s["required"].([]any)
	for _, name := range list {
		if n, ok := name.(string); ok {
			required[n] = true
		}
	}
	out := map[string]any{}
	props, _ := s["properties"].(map[string]any)
	for name, p := range props {
		m, ok := p.(map[string]any)
		if !ok || g.variant == "required" && !required[name] {
			continue
		}
		out[name] = g.value(m, depth+1)
		if _, isText := out[name].(string); isText && name == "full_name" {
			out[name] = DefaultRepo
		}
	}
	return out
}

func nullable(s map[string]any) bool {
	if s["nullable"] == true {
		return true
	}
	if types, ok := s["type"].([]any); ok {
		return slices.Contains(types, any("null"))
	}
	for _, key := range []string{"oneOf", "anyOf"} {
		some, _ := s[key].([]any)
		for _, one := range some {
			if m, ok := one.(map[string]any); ok && m["type"] == "null" {
				return true
			}
		}
	}
	return false
}

func kind(s map[string]any) string {
	switch t := s["type"].(type) {
	case string:
		return t
	case []any:
		for _, one := range t {
			if name, ok := one.(string); ok && name != "null" {
				return name
			}
		}
	}
	if s["properties"] != nil {
		return "object"
	}
	return "string"
}

func text(s map[string]any) string {
	switch s["format"] {
	case "date-time":
		return stamp()
	case "uri":
		return "https://github.com/" + DefaultRepo
	default:
		return "text"
	}
}
