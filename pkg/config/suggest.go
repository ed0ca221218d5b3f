package config

import (
	"reflect"
	"slices"
	"strings"
)

// suggest returns ", did you mean ...?" for an unknown key of t, or nothing. A
// name that t does not have is also looked for everywhere else: keys are often
// right and in the wrong place.
func suggest(key, parent string, t reflect.Type) string {
	var names []string
	for name := range fieldsOf(t) {
		names = append(names, name)
	}
	if best := nearest(key, names); best != "" {
		return ": did you mean " + best + "?"
	}
	var elsewhere []string
	for _, k := range keys(reflect.TypeFor[Config](), "") {
		if k != join(parent, key) && (k == key || strings.HasSuffix(k, "."+key)) {
			elsewhere = append(elsewhere, k)
		}
	}
	if len(elsewhere) > 0 {
		return ": did you mean " + strings.Join(elsewhere, " or ") + "?"
	}
	slices.Sort(names)
	return ": the keys here are " + strings.Join(names, ", ")
}

// keys lists every key below t, dotted.
func keys(t reflect.Type, parent string) []string {
	var all []string
	for f := range t.Fields() {
		k := join(parent, yamlName(f))
		all = append(all, k)
		if f.Type.Kind() == reflect.Struct {
			all = append(all, keys(f.Type, k)...)
		}
	}
	return all
}

// nearest returns the name that is most likely meant by word, or "".
func nearest(word string, names []string) string {
	slices.Sort(names)
	w := fold(word)
	best, distance := "", len(w)/3+1
	for _, name := range names {
		n := fold(name)
		switch d := edits(w, n); {
		case d < distance:
			best, distance = name, d
		case best == "" && len(w) >= 4 && (strings.HasPrefix(n, w) || strings.HasPrefix(w, n)):
			best = name
		}
	}
	return best
}

// fold makes max_retries, max-retries and MaxRetries alike.
func fold(s string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(s))
}

// edits counts the letters to insert, delete or replace, two swapped
// neighbours counting as one, between a and b.
func edits(a, b string) int {
	const long = 64 // no key is longer
	if len(a) > long || len(b) > long {
		return long
	}
	d := make([][]int, len(a)+1)
	for i := range d {
		d[i] = make([]int, len(b)+1)
		d[i][0] = i
	}
	for j := range d[0] {
		d[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			replace := d[i-1][j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			d[i][j] = min(replace, d[i-1][j]+1, d[i][j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d[i][j] = min(d[i][j], d[i-2][j-2]+1)
			}
		}
	}
	return d[len(a)][len(b)]
}
