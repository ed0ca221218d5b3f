package config_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"loopfleet/pkg/config"
)

func schema(t *testing.T) (*jsonschema.Schema, map[string]any) {
	t.Helper()
	b, err := config.Schema()
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("config.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("config.json")
	if err != nil {
		t.Fatal(err)
	}
	m, ok := doc.(map[string]any)
	if !ok {
		t.Fatalf("the schema is a %T", doc)
	}
	return s, m
}

// fromYAML is a file as a validator of JSON sees it.
func fromYAML(t *testing.T, text string) any {
	t.Helper()
	var v any
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestSchema_AcceptsWhatLoads(t *testing.T) {
	t.Parallel()
	s, _ := schema(t)
	for name, text := range map[string]string{
		"example": config.Example(),
		"little":  "worker: {id: w1}\nrouting: {minimumPermission: admin, tmux: {harnessKillGraceSeconds: 0.5}}\n",
		"empty":   "{}",
		"harness": "harnesses: {mine: {command: [x], receipt: none}}",
	} {
		parse(t, text)
		if err := s.Validate(fromYAML(t, text)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSchema_RefusesWhatDoesNotLoad(t *testing.T) {
	t.Parallel()
	s, _ := schema(t)
	for _, text := range []string{
		"unheard: 1", "routing: {maxRetrys: 3}", "harnesses: {demo: {cmd: [x]}}", "polling: {sources: [{repo: a/b}]}",
		"routing: {maxRetries: 0}", "polling: {maxRetries: 1.5}", "polling: {maxRetries: '3'}", "polling: {intervalSeconds: 86401}",
		"routing: {tmux: {harnessKillGraceSeconds: -1}}", "routing: {tmux: {killHarnessOnClose: 'yes'}}",
		"routing: {retryBackoffSeconds: []}", "routing: {retryBackoffSeconds: [-1]}", "routing: {authorizedUsers: alice}",
		"routing: {label: ''}", "routing: {minimumPermission: read}", "worker: {onStop: stop}", "worker: {id: a/b}",
		"harnesses: {demo: {receipt: maybe}}", "workspace: {cloneProtocol: git}", "polling: {sources: [{repos: [hello]}]}", "polling: {sources: [{repos: []}]}",
		"metrics: {listen: localhost}", "github: {apiUrl: api.github.com}", "github: {app: {id: -1}}", "webhooks: {ghWebhook: {path: x}}",
	} {
		if problems(t, text) == nil {
			t.Errorf("%s loads", text)
		}
		if err := s.Validate(fromYAML(t, text)); err == nil {
			t.Errorf("%s is valid by the schema", text)
		}
	}
}

func TestSchema_DescribesEveryKeyAndItsDefault(t *testing.T) {
	t.Parallel()
	_, doc := schema(t)
	n := 0
	var walk func(path string, s map[string]any)
	walk = func(path string, s map[string]any) {
		props, ok := s["properties"].(map[string]any)
		if ok && s["additionalProperties"] != false {
			t.Errorf("%s accepts any key", path)
		}
		for name, p := range props {
			p, ok := p.(map[string]any)
			if !ok {
				t.Fatalf("%s.%s is a %T", path, name, p)
			}
			n++
			if d, ok := p["description"].(string); !ok || d == "" {
				t.Errorf("%s.%s has no description", path, name)
			}
			walk(path+"."+name, p)
			for _, below := range []string{"items", "additionalProperties"} {
				if sub, ok := p[below].(map[string]any); ok {
					walk(path+"."+name, sub)
				}
			}
		}
	}
	walk("", doc)
	if n < 50 {
		t.Errorf("only %d keys", n)
	}
	retries := at(t, doc, "properties", "polling", "properties", "maxRetries")
	if got := fmt.Sprintf("%v %v %v", retries["default"], retries["minimum"], retries["type"]); got != "3 1 integer" {
		t.Errorf("polling.maxRetries: %v", retries)
	}
}

func at(t *testing.T, m map[string]any, path ...string) map[string]any {
	t.Helper()
	for _, k := range path {
		sub, ok := m[k].(map[string]any)
		if !ok {
			t.Fatalf("no %s in %v", k, m)
		}
		m = sub
	}
	return m
}
