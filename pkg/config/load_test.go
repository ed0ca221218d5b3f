package config_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"loopfleet/pkg/config"
)

// env is an environment with a home and the given NAME, VALUE pairs.
func env(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i+1 < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		if name == "HOME" {
			return "/home/me"
		}
		return ""
	}
}

func parse(t *testing.T, text string) config.Config {
	t.Helper()
	cfg, err := config.Parse("f.yaml", []byte(text), env())
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// problems are the lines of the error that the text gives.
func problems(t *testing.T, text string) []string {
	t.Helper()
	cfg, err := config.Parse("f.yaml", []byte(text), env())
	if err == nil {
		return nil
	}
	var list config.Errors
	if !errors.As(err, &list) {
		t.Fatalf("error is a %T: %v", err, err)
	}
	if diff := cmp.Diff(config.Config{}, cfg); diff != "" {
		t.Errorf("a broken configuration is returned:\n%s", diff)
	}
	return strings.Split(list.Error(), "\n")
}

// expanded is the default configuration as it is loaded.
func expanded() config.Config {
	cfg := config.Default()
	cfg.StateDir = "/home/me/.local/share/loopfleet"
	return cfg
}

func TestParse_NothingIsTheDefault(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"empty": "", "comment": "# nothing\n", "null": "~\n", "mark": "---\n", "empty mapping": "{}", "byte order mark": "\ufeff",
		"keys without values": "routing:\nharnesses:\n  claude:\npolling: {maxRetries: }\nworker: ~\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(expanded(), parse(t, text)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestExample_StatesTheDefaults(t *testing.T) {
	t.Parallel()
	want := expanded()
	want.Webhooks.GHWebhook.Events = []string{}
	want.Polling.Sources = []config.Source{{
		Provider: "github", Repos: []string{"octo/hello"}, Monitor: config.Monitor{Issues: true, PullRequests: true},
	}}
	want.Routing.AuthorizedUsers, want.Routing.AgentLogins = []string{"alice"}, []string{}
	want.Routing.ArmGraceSeconds, want.Routing.QuietSeconds = 60, 20 // left out of the example
	want.Harnesses["claude"] = config.Harness{Args: []string{}}
	if diff := cmp.Diff(want, parse(t, config.Example())); diff != "" {
		t.Error(diff)
	}
	if w := config.Warnings(parse(t, config.Example())); len(w) != 1 || !strings.Contains(w[0], "polling.enabled is false") {
		t.Errorf("warnings %q", w)
	}
}

func TestParse_PutsTheFileOverTheDefaults(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		text string
		want func(*config.Config)
	}{
		"one key of a group": {
			"routing: {tmux: {harnessKillGraceSeconds: 2.5}}",
			func(c *config.Config) { c.Routing.Tmux.HarnessKillGraceSeconds = 2.5 },
		},
		"a list replaces": {
			"routing: {retryBackoffSeconds: [1]}",
			func(c *config.Config) { c.Routing.RetryBackoffSeconds = []int{1} },
		},
		"a harness more": {
			"harnesses: {mine: {command: [x, y], receipt: none}}",
			func(c *config.Config) {
				c.Harnesses["mine"] = config.Harness{Command: []string{"x", "y"}, Receipt: "none"}
			},
		},
		"a harness in part": {
			"harnesses: {demo: {args: [-v]}}",
			func(c *config.Config) {
				c.Harnesses["demo"] = config.Harness{Args: []string{"-v"}, Command: []string{"loopfleet", "demo-agent"}, Receipt: "file"}
			},
		},
		"an adapter needs no command": {
			"routing: {defaultHarness: codex}\nharnesses: {codex: }",
			func(c *config.Config) { c.Routing.DefaultHarness, c.Harnesses["codex"] = "codex", config.Harness{} },
		},
		"a source polls everything": {
			"polling: {enabled: true, sources: [{repos: [a/b]}, {repos: [c/d], monitor: {issues: false}}]}",
			func(c *config.Config) {
				c.Polling.Enabled = true
				c.Polling.Sources = []config.Source{
					{Provider: "github", Repos: []string{"a/b"}, Monitor: config.Monitor{Issues: true, PullRequests: true}},
					{Provider: "github", Repos: []string{"c/d"}, Monitor: config.Monitor{PullRequests: true}},
				}
			},
		},
		"anchors, aliases and merge keys": {
			"harnesses:\n  a: &a {command: [x], receipt: none}\n  b: *a\n  c: {<<: *a, receipt: file}\n  d: {<<: [*a], command: [y]}\n",
			func(c *config.Config) {
				c.Harnesses["a"] = config.Harness{Command: []string{"x"}, Receipt: "none"}
				c.Harnesses["b"] = c.Harnesses["a"]
				c.Harnesses["c"] = config.Harness{Command: []string{"x"}, Receipt: "file"}
				c.Harnesses["d"] = config.Harness{Command: []string{"y"}, Receipt: "none"}
			},
		},
		"home in every path": {
			"stateDir: ~\nnats: {credentialsFile: ~/n}\nworkspace: {root: ~/w}\ngithub: {tokenFile: ~/t, app: {id: 1, keyFile: ~/k}}\neventLog: {file: ~/e}\n",
			func(c *config.Config) {
				c.NATS.CredentialsFile, c.Workspace.Root, c.EventLog.File = "/home/me/n", "/home/me/w", "/home/me/e"
				c.GitHub.TokenFile, c.GitHub.App = "/home/me/t", config.GitHubApp{ID: 1, KeyFile: "/home/me/k"}
			},
		},
		"home itself": {`stateDir: "~"`, func(c *config.Config) { c.StateDir = "/home/me" }},
		"any loopback is fine for insecure": {
			`webhooks: {ghWebhook: {listen: "[::1]:0", insecure: true}}`,
			func(c *config.Config) { c.Webhooks.GHWebhook.Listen, c.Webhooks.GHWebhook.Insecure = "[::1]:0", true },
		},
		"several servers": {
			"nats: {url: 'nats://a:4222, tls://b'}",
			func(c *config.Config) { c.NATS.URL = "nats://a:4222, tls://b" },
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := expanded()
			tt.want(&want)
			if diff := cmp.Diff(want, parse(t, tt.text)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParse_ReportsEverythingAtOnce(t *testing.T) {
	t.Parallel()
	text := `stateDir: [a]
routing:
  maxRetrys: 5
  maxRetries: 0
  label: 7
  authorizedUsers: alice
  tmux: {killHarnessOnClose: yes, harnessKillGraceSeconds: -1}
polling:
  maxRetries: "3"
  sources:
    - provider: gitlab
      repos: []
    - repos: [hello, o/r, 5]
  maxRetries: 4
harnesses:
  mine: {receipt: maybe}
worker: {onStop: stop}
unheard: 1
`
	want := []string{
		`f.yaml:1:1: stateDir: must be text, is a list`,
		`f.yaml:3:3: routing.maxRetrys: unknown key: did you mean maxRetries?`,
		`f.yaml:4:15: routing.maxRetries: must be at least 1, is 0`,
		`f.yaml:5:10: routing.label: must be text, is 7: put it in quotes`,
		`f.yaml:6:20: routing.authorizedUsers: must be a list, is the text "alice": write [alice]`,
		`f.yaml:7:30: routing.tmux.killHarnessOnClose: must be true or false, is the text "yes"`,
		`f.yaml:7:60: routing.tmux.harnessKillGraceSeconds: must be at least 0, is -1`,
		`f.yaml:9:15: polling.maxRetries: must be a whole number, is the text "3"`,
		`f.yaml:11:17: polling.sources[0].provider: must be github, is "gitlab"`,
		`f.yaml:12:7: polling.sources[0].repos: must have at least 1 entry`,
		`f.yaml:13:15: polling.sources[1].repos[0]: must be OWNER/NAME, is "hello"`,
		`f.yaml:13:27: polling.sources[1].repos[2]: must be text, is 5: put it in quotes`,
		`f.yaml:14:3: polling.maxRetries: is set twice, first on line 9`,
		`f.yaml:16:3: harnesses.mine: needs a command: there is an adapter for claude, codex, copilot, gemini, opencode, qwen only`,
		`f.yaml:16:19: harnesses.mine.receipt: must be file or none, is "maybe"`,
		`f.yaml:17:18: worker.onStop: must be keep or drain, is "stop"`,
		`f.yaml:18:1: unheard: unknown key: the keys here are eventLog, github, harnesses, metrics, nats, polling, routing, stateDir, webhooks, worker, workspace`,
	}
	if diff := cmp.Diff(want, problems(t, text)); diff != "" {
		t.Error(diff)
	}
}

// rule: RR-21
func TestParse_MaxRetriesIsAWholeNumberFromOne(t *testing.T) {
	t.Parallel()
	for _, group := range []string{"polling", "routing"} {
		key := group + ".maxRetries: "
		for value, want := range map[string]string{
			"1": "", "17": "", "0x10": "", "": "",
			"0": key + "must be at least 1, is 0", "-3": key + "must be at least 1, is -3",
			"1.5": key + "must be a whole number, is 1.5", "3.0": key + "must be a whole number, is 3.0",
			"true": key + "must be a whole number, is true", "three": key + `must be a whole number, is the text "three"`,
			`"3"`: key + `must be a whole number, is the text "3"`, "[3]": key + "must be a whole number, is a list",
			"{a: 3}": key + "must be a whole number, is a mapping", ".inf": key + "must be a whole number, is .inf",
			"99999999999999999999": key + "must be a whole number, is 99999999999999999999",
			"2026-01-01":           key + "must be a whole number, is 2026-01-01",
		} {
			t.Run(group+" "+value, func(t *testing.T) {
				t.Parallel()
				got := strings.Join(problems(t, group+": {maxRetries: "+value+"}"), "\n")
				if (got == "") != (want == "") || !strings.HasSuffix(got, want) {
					t.Errorf("problems %q, want %q", got, want)
				}
			})
		}
		if cfg := parse(t, ""); cfg.Polling.MaxRetries != 3 || cfg.Routing.MaxRetries != 3 {
			t.Errorf("defaults %d and %d, want 3", cfg.Polling.MaxRetries, cfg.Routing.MaxRetries)
		}
	}
	// The flag --max-retries comes after the file.
	cfg := parse(t, "")
	cfg.Polling.MaxRetries = 0
	if err := config.Validate(cfg); err == nil || err.Error() != "polling.maxRetries: must be at least 1, is 0" {
		t.Errorf("after the flag: %v", err)
	}
}

// rule: CL-19 (the values; reload has its own tests)
func TestParse_KillHarnessOnCloseAndGrace(t *testing.T) {
	t.Parallel()
	if tm := parse(t, "").Routing.Tmux; !tm.KillHarnessOnClose || tm.KillGrace() != 5*time.Second {
		t.Errorf("defaults %+v, want true and 5", tm)
	}
	for text, want := range map[string]string{
		"harnessKillGraceSeconds: 0":       "",
		"harnessKillGraceSeconds: 0.5":     "",
		"harnessKillGraceSeconds: -0.1":    "must be at least 0, is -0.1",
		"harnessKillGraceSeconds: 1e300":   "must be at most 3600, is 1e+300",
		"harnessKillGraceSeconds: .nan":    "must be a number, is .nan",
		"harnessKillGraceSeconds: soon":    `must be a number, is the text "soon"`,
		"killHarnessOnClose: false":        "",
		"killHarnessOnClose: 1":            "must be true or false, is 1",
		"killHarnessOnClose: \"false\"":    `must be true or false, is the text "false"`,
		"keepSessionOnClose: [true,false]": "must be true or false, is a list",
	} {
		got := strings.Join(problems(t, "routing: {tmux: {"+text+"}}"), "\n")
		if (got == "") != (want == "") || !strings.HasSuffix(got, want) {
			t.Errorf("%s: problems %q, want %q", text, got, want)
		}
	}
}

func TestParse_Refuses(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ text, want string }{
		"not YAML":                    {"a: [1\nb: 2\n", "f.yaml:1: not valid YAML: did not find expected"},
		"a tab":                       {"routing:\n\tlabel: x\n", "f.yaml:2: not valid YAML: found character that cannot start any token"},
		"an unknown anchor":           {"routing: *x\n", "not valid YAML: unknown anchor 'x' referenced"},
		"two documents":               {"{}\n---\n{}\n", "f.yaml:2:1: a second document begins here: the file must have only one"},
		"a list":                      {"- a\n", "f.yaml:1:1: must be a mapping of keys to values, is a list"},
		"a word":                      {"loopfleet\n", `must be a mapping of keys to values, is the text "loopfleet"`},
		"a key that is no word":       {"? [a]\n: 1\n", "a key must be a word, is a list"},
		"a group that is a word":      {"routing: off\n", `f.yaml:1:10: routing: must be a mapping of keys to values, is the text "off"`},
		"a merge of itself":           {"harnesses: &a\n  <<: *a\n", "contains itself"},
		"a merge of a word":           {"harnesses: {a: {<<: b}}\n", "must be a mapping"},
		"the wrong place":             {"maxRetries: 3\n", "maxRetries: unknown key: did you mean polling.maxRetries or routing.maxRetries?"},
		"another spelling":            {"routing: {max_retries: 3}\n", "did you mean maxRetries?"},
		"two letters swapped":         {"ruotnig: {}\n", "did you mean routing?"},
		"a secret in the file":        {"webhooks: {ghWebhook: {secret: hunter2}}\n", "webhooks.ghWebhook.secret: unknown key: did you mean secretEnv?"},
		"a hostile key":               {"\"\\e[31mred\\n\": 1\n", `f.yaml:1:1: "\x1b[31mred\n": unknown key`},
		"a hostile value":             {"worker: {onStop: \"\\e]0;x\\a\"}\n", `is "\x1b]0;x\a"`},
		"a long value":                {"worker: {onStop: " + strings.Repeat("x", 500) + "}\n", `is "` + strings.Repeat("x", 60) + `"...`},
		"insecure for everybody":      {"webhooks: {ghWebhook: {listen: ':8787', insecure: true}}\n", `webhooks.ghWebhook.insecure: unsigned deliveries are accepted on a loopback address only, and listen is ":8787"`},
		"insecure by name":            {"webhooks: {ghWebhook: {listen: 'example.org:8787', insecure: true}}\n", "loopback"},
		"listen without a port":       {"metrics: {listen: localhost}\n", `metrics.listen: must be HOST:PORT, such as 127.0.0.1:8787, is "localhost"`},
		"a port too high":             {"metrics: {listen: 'a:65536'}\n", "must be HOST:PORT"},
		"one port twice":              {"metrics: {listen: '127.0.0.1:8787'}\n", "metrics.listen: is the address of webhooks.ghWebhook.listen too"},
		"a relative path":             {"webhooks: {ghWebhook: {path: hooks}}\n", `webhooks.ghWebhook.path: must begin with /, is "hooks"`},
		"polling nothing":             {"polling: {enabled: true}\n", "polling.sources: must have at least one entry when polling.enabled is true"},
		"monitoring nothing":          {"polling: {sources: [{repos: [a/b], monitor: {issues: false, pullRequests: false}}]}\n", "polling.sources[0].monitor: polls nothing"},
		"a repository by URL":         {"polling: {sources: [{repos: ['https://github.com/a/b']}]}\n", "must be OWNER/NAME"},
		"no such harness":             {"routing: {defaultHarness: claud}\n", `routing.defaultHarness: "claud" is not among the harnesses: did you mean claude?`},
		"a harness to add":            {"routing: {defaultHarness: codex}\n", "add `codex: {}` there"},
		"a harness without a program": {"harnesses: {demo: {command: ['']}}\n", "harnesses.demo.command: must begin with a program"},
		"a harness made empty":        {"harnesses: {demo: {command: []}}\n", "harnesses.demo: needs a command"},
		"a harness as a path":         {"harnesses: {../x: {command: [x]}}\n", "a harness's name has up to 32 of a-z"},
		"no label":                    {"routing: {label: ''}\n", "routing.label: must not be empty"},
		"an empty login":              {"routing: {authorizedUsers: [a, '']}\n", "f.yaml:1:32: routing.authorizedUsers[1]: must not be empty"},
		"a permission":                {"routing: {minimumPermission: read}\n", `must be write, maintain or admin, is "read"`},
		"no backoff":                  {"routing: {retryBackoffSeconds: []}\n", "routing.retryBackoffSeconds: must have at least 1 entry"},
		"a backoff below 0":           {"routing: {retryBackoffSeconds: [1, -1]}\n", "routing.retryBackoffSeconds[1]: must be at least 0, is -1"},
		"an interval past a day":      {"polling: {intervalSeconds: 9223372036854775807}\n", "must be at most 86400"},
		"a worker id":                 {"worker: {id: a/b}\n", `worker.id: must have up to 64 letters, digits, dots, dashes and underscores, is "a/b"`},
		"half an app":                 {"github: {app: {id: 5}}\n", "github.app: needs both id and keyFile"},
		"an API that is no URL":       {"github: {apiUrl: api.github.com}\n", "github.apiUrl: must be an http:// or https:// address"},
		"a broker that is no URL":     {"nats: {url: 'http://a'}\n", "nats.url: must be an address such as nats://127.0.0.1:4222"},
		"another's home":              {"stateDir: ~root/x\n", "stateDir: only ~ itself is known"},
		"a tag":                       {"stateDir: !secret x\n", "stateDir: must be text"},
		"text with an invalid tag":    {"worker: {capacity: !!int many}\n", "worker.capacity: must be a whole number"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := problems(t, tt.text)
			if len(got) != 1 || !strings.Contains(got[0], tt.want) {
				t.Errorf("problems\n%s\nwant one with\n%s", strings.Join(got, "\n"), tt.want)
			}
		})
	}
}

func TestParse_MergesThatDoubleWithEveryLineEnd(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("harnesses:\n  a0: &a0 {command: [x]}\n")
	for i := range 40 {
		fmt.Fprintf(&b, "  a%d: &a%d {<<: [*a%d, *a%d]}\n", i+1, i+1, i, i)
	}
	if got := problems(t, b.String()); len(got) == 0 || !strings.Contains(got[0], "more than 1000 merge keys") {
		t.Errorf("problems %q", got)
	}
}

func TestParse_NeverShowsWhatMayBeASecret(t *testing.T) {
	t.Parallel()
	for key, text := range map[string]string{
		"github.tokenEnv":              "github: {tokenEnv: ghp_hunter2}",
		"webhooks.ghWebhook.secretEnv": "webhooks: {ghWebhook: {secretEnv: 'hunter2!'}}",
		"nats.url":                     "nats: {url: 'nats://me:hunter2@host'}",
		"github.apiUrl":                "github: {apiUrl: 'https://me:hunter2@host'}",
		"webhooks.ghWebhook.secret":    "webhooks: {ghWebhook: {secret: hunter2}}",
		"github.token":                 "github: {token: hunter2}",
	} {
		got := strings.Join(problems(t, text), "\n")
		if !strings.Contains(got, key+": ") || strings.Contains(got, "hunter2") {
			t.Errorf("%s: problems %q", key, got)
		}
	}
	if got := strings.Join(problems(t, "github: {tokenEnv: 1234567}"), ""); strings.Contains(got, "1234567") {
		t.Errorf("problems %q", got)
	}
}

func TestParse_HomeIsNotKnown(t *testing.T) {
	t.Parallel()
	_, err := config.Parse("", nil, func(string) string { return "" })
	if err == nil || err.Error() != `stateDir: begins with ~ ("~/.local/share/loopfleet"), and HOME is not set: write the path out` {
		t.Errorf("error %v", err)
	}
}

func TestLoad_FindsTheFile(t *testing.T) {
	home, work := t.TempDir(), t.TempDir()
	t.Chdir(work)
	write := func(label string, path ...string) string {
		p := filepath.Join(path...)
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte("routing: {label: "+label+"}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	want := func(label, path string, pairs ...string) {
		t.Helper()
		cfg, err := config.Load(path, env(append(pairs, "HOME", home)...))
		if err != nil || cfg.Routing.Label != label {
			t.Errorf("label %q, %v; want %q", cfg.Routing.Label, err, label)
		}
	}
	want("loopfleet", "")
	write("home", home, ".config", "loopfleet", "config.yaml")
	want("home", "")
	write("here", "loopfleet.yaml")
	want("here", "")
	named := write("named", work, "named.yaml")
	want("named", "", config.PathEnv, named)
	given := write("given", work, "given.yaml")
	want("given", given, config.PathEnv, named)
}

func TestLoad_SaysWhatToDo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	missing := filepath.Join(dir, "missing.yaml")
	big := filepath.Join(dir, "big.yaml")
	if err := os.WriteFile(big, make([]byte, 2<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		path string
		env  func(string) string
		want string
	}{
		"missing":           {missing, env(), "check the path given with --config, or leave it out to use the defaults"},
		"missing, by name":  {"", env(config.PathEnv, missing), "check LOOPFLEET_CONFIG"},
		"a directory":       {dir, env(), "is a directory"},
		"no configuration?": {big, env(), "has more than 1048576 bytes"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := config.Load(tt.path, tt.env)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			if strings.HasPrefix(name, "missing") && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("error %v does not wrap fs.ErrNotExist", err)
			}
		})
	}
}

func TestErrors_SayWhereEachIs(t *testing.T) {
	t.Parallel()
	_, err := config.Parse("f.yaml", []byte("routing:\n  maxRetries: 0\n"), env())
	var list config.Errors
	if !errors.As(err, &list) {
		t.Fatal(err)
	}
	want := config.Errors{{File: "f.yaml", Line: 2, Column: 15, Key: "routing.maxRetries", Message: "must be at least 1, is 0"}}
	if diff := cmp.Diff(want, list); diff != "" {
		t.Error(diff)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(config.Example())
	f.Add("a: &a [*a]\n<<: {b: *a}\nrouting: {<<: [{label: \"\\0\"}]}\n")
	f.Add("harnesses: {\"]\": {command: [x]}, \"a.b[0]\": {}}\n? {}\n: 1\n")
	f.Fuzz(func(t *testing.T, text string) {
		cfg, err := config.Parse("f", []byte(text), env())
		if err == nil {
			if verr := config.Validate(cfg); verr != nil {
				t.Errorf("accepted, and then refused: %v", verr)
			}
			return
		}
		for _, r := range err.Error() {
			if r != '\n' && (unicode.IsControl(r) || r > unicode.MaxASCII) {
				t.Fatalf("the message has %U: %q", r, err.Error())
			}
		}
	})
}
