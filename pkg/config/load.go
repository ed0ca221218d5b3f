package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

const (
	// PathEnv names the variable that may hold the file's path.
	PathEnv = "LOOPFLEET_CONFIG"

	// maxFile is far more than any real file has, in bytes.
	maxFile = 1 << 20
)

// Path returns the file that Load reads: path itself, else $LOOPFLEET_CONFIG,
// else ./loopfleet.yaml or ~/.config/loopfleet/config.yaml if one is there.
// Empty means that there is no file and the defaults hold.
func Path(path string, getenv func(string) string) string {
	if path != "" {
		return path
	}
	if p := getenv(PathEnv); p != "" {
		return p
	}
	candidates := []string{"loopfleet.yaml"}
	if home := getenv("HOME"); home != "" {
		candidates = append(candidates, filepath.Join(home, ".config", "loopfleet", "config.yaml"))
	}
	for _, p := range candidates {
		// Anything but "not there" is for Load to report.
		if _, err := os.Stat(p); !errors.Is(err, fs.ErrNotExist) {
			return p
		}
	}
	return ""
}

// Load reads the file that Path finds over the defaults. An error about its
// contents is an Errors with every problem; the configuration is not usable
// then. Of the environment it reads LOOPFLEET_CONFIG and HOME.
func Load(path string, getenv func(string) string) (Config, error) {
	file := Path(path, getenv)
	if file == "" {
		return Parse("", nil, getenv)
	}
	data, err := read(file)
	if err != nil {
		hint := "check the path given with --config, or leave it out to use the defaults"
		if path == "" {
			hint = "check " + PathEnv + " and the file's permissions"
		}
		return Config{}, fmt.Errorf("read configuration: %w (%s)", err, hint)
	}
	return Parse(file, data, getenv)
}

func read(file string) ([]byte, error) {
	f, err := os.Open(file) //nolint:gosec // the operator names it
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		return nil, fmt.Errorf("%s has more than %d bytes: is it a configuration?", plain(file), maxFile)
	}
	return data, err
}

// Parse is Load for a file that is in memory already; file is its name in
// messages.
func Parse(file string, data []byte, getenv func(string) string) (Config, error) {
	cfg := Default()
	d := newDecoder(file)
	if root := d.document(data); root != nil {
		d.value(root, reflect.ValueOf(&cfg).Elem(), where{ns: rootName}, root)
	}
	d.validate(&cfg)
	d.expand(&cfg, getenv("HOME"))
	if err := d.problems.errOrNil(); err != nil {
		return Config{}, err
	}
	return cfg, nil
}

// Validate checks a configuration that was changed after it was loaded, by a
// flag for instance. Its problems have no line.
func Validate(cfg Config) error {
	d := newDecoder("")
	d.validate(&cfg)
	return d.problems.errOrNil()
}

// document returns the root of the only document; nil when it is empty or
// broken.
func (d *decoder) document(data []byte) *yaml.Node {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		d.syntax(err)
		return nil
	}
	switch err := dec.Decode(&second); {
	case err == nil:
		d.problem(&second, "", "a second document begins here: the file must have only one")
	case !errors.Is(err, io.EOF):
		d.syntax(err)
	}
	if len(doc.Content) == 0 {
		return nil
	}
	return doc.Content[0]
}

// syntax reports an error of the YAML parser, which has its line in the text
// only.
func (d *decoder) syntax(err error) {
	msg := strings.TrimPrefix(err.Error(), "yaml: ")
	p := Problem{File: d.file}
	if rest, ok := strings.CutPrefix(msg, "line "); ok {
		if num, text, ok := strings.Cut(rest, ": "); ok {
			if n, err := strconv.Atoi(num); err == nil {
				p.Line, msg = n, text
			}
		}
	}
	p.Message = "not valid YAML: " + unquoted(msg)
	d.problems = append(d.problems, p)
}

// unquoted escapes a text without putting it in quotes.
func unquoted(s string) string {
	q := strconv.QuoteToASCII(s)
	return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
}
