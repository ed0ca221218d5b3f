// Package config loads the one YAML file of all roles.
package config
