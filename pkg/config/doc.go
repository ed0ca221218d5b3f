// Package config loads the one YAML file that all roles share.
//
// [Load] puts the file over [Default], refuses what it does not know, and
// reports every problem at once as [Errors]: file, line, column, dotted key and
// a sentence for people. Nothing of the file reaches the message unescaped, and
// values of keys that could hold a secret are not shown at all.
//
// Secrets are never in the file: it names the environment variables and files
// that hold them (see [GHWebhook.Secret]). A key it does not know, such as
// `secret`, is an error like any other.
//
// A key without a value means its default. Lists replace the default list;
// harnesses merge by name, so `claude` and `demo` are there unless the file
// changes them. Anchors, aliases and merge keys work. Relative paths are
// relative to the working directory; a leading ~/ is $HOME.
//
// A Config is a plain value; once loaded nobody changes it, so it may be read
// from any goroutine.
package config
