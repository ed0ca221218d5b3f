package config

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// rootName begins the namespace that the validator gives its errors.
const rootName = "Config"

// place is where a key stands in the file.
type place struct {
	shown        string
	line, column int
}

// where is a key as the validator names it (ns) and as people do (shown).
type where struct{ ns, shown string }

func (w where) field(name string) where {
	return where{w.ns + "." + name, join(w.shown, name)}
}

func (w where) entry(key string) where {
	return where{w.ns + "[" + key + "]", join(w.shown, plain(key))}
}

func (w where) index(i int) where {
	s := "[" + strconv.Itoa(i) + "]"
	return where{w.ns + s, w.shown + s}
}

func join(parent, name string) string {
	if parent == "" {
		return name
	}
	return parent + "." + name
}

// decoder puts YAML nodes over a Config and collects what is wrong. The yaml
// package's own decoder stops at the first duplicate key and gives no columns.
type decoder struct {
	file     string
	problems Errors
	places   map[string]place
	// bad are the keys that have a problem; one is enough.
	bad map[string]bool
	// open are the anchors being followed.
	open []*yaml.Node
	// merged counts merge keys: few lines of them can expand without end.
	merged int
}

// maxMerged is more merge keys than a person writes.
const maxMerged = 1000

func newDecoder(file string) *decoder {
	return &decoder{file: file, places: map[string]place{}, bad: map[string]bool{}}
}

func (d *decoder) problem(n *yaml.Node, key, format string, args ...any) {
	d.bad[key] = true
	d.problems = append(d.problems, Problem{
		File: d.file, Line: n.Line, Column: n.Column, Key: key, Message: fmt.Sprintf(format, args...),
	})
}

// value decodes n into v. Key is the node to point at when the whole value is
// meant.
func (d *decoder) value(n *yaml.Node, v reflect.Value, w where, key *yaml.Node) {
	at := n
	if n.Kind != yaml.ScalarNode {
		at = key // a block's own position is that of its first entry
	}
	d.places[w.ns] = place{w.shown, at.Line, at.Column}
	n, done := d.follow(n, w)
	if n == nil {
		return
	}
	defer done()
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		return // a key without a value: the default
	}
	switch v.Kind() {
	case reflect.Struct:
		d.structure(n, v, w, at)
	case reflect.Map:
		d.mapping(n, v, w, at)
	case reflect.Slice:
		d.list(n, v, w, at)
	default:
		d.scalar(n, v, w, at)
	}
}

// follow resolves aliases; nil when an anchor contains itself.
func (d *decoder) follow(n *yaml.Node, w where) (*yaml.Node, func()) {
	depth := len(d.open)
	for n.Kind == yaml.AliasNode {
		if slices.Contains(d.open, n.Alias) {
			d.problem(n, w.shown, "the anchor %s contains itself", quote(n.Value))
			d.open = d.open[:depth]
			return nil, nil
		}
		d.open = append(d.open, n.Alias)
		n = n.Alias
	}
	return n, func() { d.open = d.open[:depth] }
}

// pair is one entry of a mapping.
type pair struct{ key, value *yaml.Node }

// pairs lists a mapping's entries, those of its merge keys last, without
// duplicates. Not a mapping: reported, and nothing.
func (d *decoder) pairs(n *yaml.Node, w where, at *yaml.Node) []pair {
	if n.Kind != yaml.MappingNode {
		d.problem(at, w.shown, "must be a mapping of keys to values, is %s", describe(n))
		return nil
	}
	var own, merged []pair
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if k.Kind == yaml.ScalarNode && k.ShortTag() == "!!merge" {
			merged = append(merged, d.merge(v, w)...)
			continue
		}
		if k.Kind != yaml.ScalarNode {
			d.problem(k, w.shown, "a key must be a word, is %s", describe(k))
			continue
		}
		if line, dup := seen[k.Value]; dup {
			d.problem(k, join(w.shown, plain(k.Value)), "is set twice, first on line %d", line)
			continue
		}
		seen[k.Value] = k.Line
		own = append(own, pair{k, v})
	}
	for _, p := range merged {
		if _, ok := seen[p.key.Value]; !ok {
			seen[p.key.Value] = p.key.Line
			own = append(own, p)
		}
	}
	return own
}

// merge lists the entries behind a merge key: a mapping, or a list of them.
func (d *decoder) merge(v *yaml.Node, w where) []pair {
	if d.merged++; d.merged >= maxMerged {
		if d.merged == maxMerged {
			d.problem(v, w.shown, "more than %d merge keys", maxMerged)
		}
		return nil
	}
	n, done := d.follow(v, w)
	if n == nil {
		return nil
	}
	defer done()
	if n.Kind != yaml.SequenceNode {
		return d.pairs(n, w, v)
	}
	var all []pair
	for _, item := range n.Content {
		all = append(all, d.merge(item, w)...)
	}
	return all
}

func (d *decoder) structure(n *yaml.Node, v reflect.Value, w where, at *yaml.Node) {
	fields := fieldsOf(v.Type())
	for _, p := range d.pairs(n, w, at) {
		i, ok := fields[p.key.Value]
		if !ok {
			key := join(w.shown, plain(p.key.Value))
			d.problem(p.key, key, "unknown key%s", suggest(p.key.Value, w.shown, v.Type()))
			continue
		}
		d.value(p.value, v.Field(i), w.field(p.key.Value), p.key)
	}
}

// fieldsOf maps YAML names to field numbers.
func fieldsOf(t reflect.Type) map[string]int {
	m := map[string]int{}
	for i := range t.NumField() {
		m[yamlName(t.Field(i))] = i
	}
	return m
}

func yamlName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	return name
}

// mapping decodes over the entries that are there by default.
func (d *decoder) mapping(n *yaml.Node, v reflect.Value, w where, at *yaml.Node) {
	for _, p := range d.pairs(n, w, at) {
		key := reflect.ValueOf(p.key.Value)
		elem := reflect.New(v.Type().Elem()).Elem()
		if old := v.MapIndex(key); old.IsValid() {
			elem.Set(old)
		}
		d.value(p.value, elem, w.entry(p.key.Value), p.key)
		v.SetMapIndex(key, elem)
	}
}

func (d *decoder) list(n *yaml.Node, v reflect.Value, w where, at *yaml.Node) {
	if n.Kind != yaml.SequenceNode {
		hint := ""
		if n.Kind == yaml.ScalarNode && v.Type().Elem().Kind() != reflect.Struct {
			hint = ": write [" + plain(n.Value) + "]"
		}
		d.problem(at, w.shown, "must be a list, is %s%s", describe(n), hint)
		return
	}
	out := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, item := range n.Content {
		if elem, ok := reflect.TypeAssert[*Source](out.Index(i).Addr()); ok {
			*elem = defaultSource()
		}
		d.value(item, out.Index(i), w.index(i), item)
	}
	v.Set(out)
}

func (d *decoder) scalar(n *yaml.Node, v reflect.Value, w where, at *yaml.Node) {
	is := describe(n)
	if secretive(w.shown) {
		is = "something else"
	}
	tag := n.ShortTag()
	if n.Kind != yaml.ScalarNode {
		tag = ""
	}
	switch v.Kind() {
	case reflect.String:
		switch tag {
		case "!!str":
			v.SetString(n.Value)
		case "!!int", "!!float", "!!bool", "!!timestamp":
			d.problem(at, w.shown, "must be text, is %s: put it in quotes", is)
		default:
			d.problem(at, w.shown, "must be text, is %s", is)
		}
	case reflect.Bool:
		var b bool
		if tag != "!!bool" || n.Decode(&b) != nil {
			d.problem(at, w.shown, "must be true or false, is %s", is)
			return
		}
		v.SetBool(b)
	case reflect.Int, reflect.Int64:
		var i int64
		if tag != "!!int" || n.Decode(&i) != nil {
			d.problem(at, w.shown, "must be a whole number, is %s", is)
			return
		}
		v.SetInt(i)
	case reflect.Float64:
		var f float64
		if tag != "!!int" && tag != "!!float" || n.Decode(&f) != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			d.problem(at, w.shown, "must be a number, is %s", is)
			return
		}
		v.SetFloat(f)
	default:
		panic("config: no decoding of " + v.Type().String())
	}
}

// describe says what a node is, for "must be ..., is ...".
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	default: // a scalar
	}
	switch n.ShortTag() {
	case "!!str":
		return "the text " + quote(n.Value)
	case "!!null":
		return "empty"
	default:
		return plain(n.Value)
	}
}
