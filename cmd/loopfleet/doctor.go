package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"loopfleet/pkg/config"
	"loopfleet/pkg/doctor"
	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/process"
)

// errUnwell says that a check has failed; the findings are printed already.
var errUnwell = errors.New("something will not work")

func newDoctorCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look for what is missing or wrong, and say what to do",
		Long: `Look at this machine, its configuration, the NATS server and, where a token is
configured, the forge: whether everything Loopfleet needs is there, why it matters
and what to do. Nothing is changed.

Run it as the user, and with the environment, that Loopfleet runs with. The exit
status is 1 when something will not work ("fail"), 0 otherwise.

With --json: an array of objects with check, level (ok, warn, fail), what, why, do.`,
		Example: `  loopfleet doctor
  loopfleet doctor --json | jq '.[] | select(.level != "ok")'`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.doctor(cmd.Context(), asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) doctor(ctx context.Context, asJSON bool) error {
	found := a.findings(ctx)
	var err error
	if asJSON {
		err = a.printJSON(found)
	} else {
		err = a.print(a.describeFindings(found))
	}
	if err == nil && doctor.Failed(found) {
		err = &quietError{errUnwell}
	}
	return err
}

func (a *app) findings(ctx context.Context) []doctor.Finding {
	cfg, err := a.settings()
	if err != nil {
		return unloadable(err)
	}
	secret, secretErr := process.WebhookSecret(cfg, a.getenv)
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	return doctor.Run(ctx, doctor.Deps{
		Config: cfg, Getenv: a.getenv, Executable: self, Secret: secret, SecretErr: secretErr,
		Connect: func(ctx context.Context) (*nats.Conn, jetstream.JetStream, error) {
			return process.Connect(ctx, cfg, "loopfleet doctor", a.getenv, zerolog.Nop())
		},
	})
}

// unloadable is a configuration that cannot be used: every problem of it.
func unloadable(err error) []doctor.Finding {
	why, do := "no process starts with it", "correct it; `loopfleet config check` tries again"
	problems, ok := errors.AsType[config.Errors](err)
	if !ok {
		return []doctor.Finding{{Check: "config", Level: doctor.Fail, What: err.Error(), Why: why, Do: do}}
	}
	out := make([]doctor.Finding, len(problems))
	for i := range problems {
		out[i] = doctor.Finding{Check: "config", Level: doctor.Fail, What: problems[i].String(), Why: why, Do: do}
	}
	return out
}

// describeFindings is the findings for people, within the terminal's width.
func (a *app) describeFindings(found []doctor.Finding) string {
	const indent = 18
	paint := map[doctor.Level]string{doctor.OK: green, doctor.Warn: yellow, doctor.Fail: red}
	colour := a.colour(a.stdout)
	var b strings.Builder
	counts := map[doctor.Level]int{}
	for _, f := range found {
		counts[f.Level]++
		level := fmt.Sprintf("%-4s", f.Level)
		if colour {
			level = paint[f.Level] + level + reset
		}
		fmt.Fprintf(&b, "%s  %-10s  ", level, f.Check)
		for i, line := range wrap(eventlog.Escape(f.What), a.width()-indent) {
			if i > 0 {
				b.WriteString(strings.Repeat(" ", indent))
			}
			b.WriteString(line + "\n")
		}
		for _, more := range []struct{ head, text string }{{"why: ", f.Why}, {"do:  ", f.Do}} {
			if more.text == "" {
				continue
			}
			for i, line := range wrap(eventlog.Escape(more.text), a.width()-indent-len(more.head)) {
				head := more.head
				if i > 0 {
					head = strings.Repeat(" ", len(head))
				}
				b.WriteString(strings.Repeat(" ", indent) + head + line + "\n")
			}
		}
	}
	fmt.Fprintf(&b, "%d ok, %d to look at, %d will not work\n", counts[doctor.OK], counts[doctor.Warn], counts[doctor.Fail])
	return b.String()
}

// wrap breaks text between words into lines of at most width columns; a longer
// word has a line of its own.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case columns(line)+1+columns(word) <= width:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
	}
	return append(lines, line)
}
