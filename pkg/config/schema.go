package config

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"strings"

	"github.com/invopop/jsonschema"
)

//go:embed example.yaml
var example string

// Example is a complete configuration with comments.
func Example() string { return example }

// source is where the descriptions of the schema come from: they cannot drift
// from the comments that developers read.
//
//go:embed config.go
var source string

// Schema returns the JSON Schema (2020-12) of the file, for editors: every key
// with its description, default and limits. Load checks more, such as rules
// between keys.
func Schema() ([]byte, error) {
	comments, err := fieldComments(source)
	if err != nil {
		return nil, fmt.Errorf("read the comments of the configuration: %w", err)
	}
	r := jsonschema.Reflector{
		FieldNameTag:               "yaml",
		DoNotReference:             true,
		Anonymous:                  true,
		RequiredFromJSONSchemaTags: true, // every key has a default
		LookupComment:              func(t reflect.Type, field string) string { return comments[t.Name()+"."+field] },
	}
	s := r.Reflect(&Config{})
	s.Title = "Loopfleet configuration"
	annotate(s, reflect.ValueOf(Default()))
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode the schema: %w", err)
	}
	return append(b, '\n'), nil
}

// annotate adds the defaults in v and the limits of the validate tags to the
// schema of a struct.
func annotate(s *jsonschema.Schema, v reflect.Value) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		p, ok := s.Properties.Get(yamlName(f))
		if !ok {
			panic("config: the schema lacks " + yamlName(f)) // a test builds it
		}
		switch f.Type.Kind() {
		case reflect.Struct:
			annotate(p, v.Field(i))
		case reflect.Map:
			annotate(p.AdditionalProperties, reflect.Zero(f.Type.Elem()))
		case reflect.Slice:
			if f.Type.Elem() == reflect.TypeFor[Source]() {
				annotate(p.Items, reflect.ValueOf(defaultSource()))
			} else if v.Field(i).Len() > 0 {
				p.Default = v.Field(i).Interface()
			}
		default:
			p.Default = v.Field(i).Interface()
		}
		limits(p, f.Tag.Get("validate"))
	}
}

// limits translates the rules of a validate tag.
func limits(p *jsonschema.Schema, tag string) {
	optional := false
	for rule := range strings.SplitSeq(tag, ",") {
		name, param, _ := strings.Cut(rule, "=")
		switch name {
		case "dive":
			if p.Items == nil {
				return // a map: its keys' rule is not stated
			}
			p = p.Items
		case "omitempty":
			optional = true
		case "required":
			one := uint64(1)
			p.MinLength = &one
		case "gte":
			p.Minimum = json.Number(param)
		case "lte":
			p.Maximum = json.Number(param)
		case "min":
			one := uint64(1) // the only one in use, as a test says
			p.MinItems = &one
		case "oneof":
			if optional {
				p.Enum = append(p.Enum, "")
			}
			for word := range strings.FieldsSeq(param) {
				p.Enum = append(p.Enum, word)
			}
		case "startswith":
			p.Pattern = "^" + param
		case "http_url":
			p.Pattern = "^https?://"
		case "listen_addr":
			p.Pattern = `^[^\s/@]*:[0-9]{1,5}$`
		default:
			if re, ok := patterns[name]; ok {
				p.Pattern = re.String()
				if optional {
					p.Pattern = "^$|" + p.Pattern
				}
			}
		}
	}
}

// fieldComments maps Type.Field to the field's comment, on one line; the
// comment of a struct serves the fields that have that type and none of their
// own.
func fieldComments(src string) (map[string]string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), "config.go", src, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	types, fields := map[string]string{}, map[string]string{}
	line := func(c *ast.CommentGroup) string { return strings.Join(strings.Fields(c.Text()), " ") }
	var structs []*ast.TypeSpec
	for _, decl := range file.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range gen.Specs {
			if ts, ok := spec.(*ast.TypeSpec); ok {
				// "Routing decides ..." -> "Decides ..."
				_, text, _ := strings.Cut(line(gen.Doc), " ")
				types[ts.Name.Name] = strings.ToUpper(text[:min(1, len(text))]) + text[min(1, len(text)):]
				structs = append(structs, ts)
			}
		}
	}
	for _, ts := range structs {
		st, ok := ts.Type.(*ast.StructType)
		if !ok {
			continue
		}
		for _, f := range st.Fields.List {
			for _, name := range f.Names {
				text := line(f.Doc)
				if id, ok := f.Type.(*ast.Ident); ok && text == "" {
					text = types[id.Name]
				}
				if rest, ok := strings.CutPrefix(text, name.Name+" "); ok {
					text = strings.ToUpper(rest[:1]) + rest[1:] // "ID is ..." -> "Is ..."
				}
				fields[ts.Name.Name+"."+name.Name] = text
			}
		}
	}
	return fields, nil
}
