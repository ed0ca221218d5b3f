// Package faulttest lets a package's tests run with every write after a side
// effect delayed, as `DISPATCH_LAG=500ms make test` asks for: what assumes that
// an attempt is over when its outcome is not recorded yet fails then.
package faulttest
