package doctor

import "testing"

func TestJudgeTmux(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]Level{
		"tmux 1.8": Fail, "tmux 2.9a": Fail, "tmux 3.1c": Fail, "tmux 3.2": Warn, "tmux 3.3a": Warn,
		"tmux 3.4": OK, "tmux 3.5a": OK, "tmux next-3.6": OK, "tmux 4.0": OK, "tmux openbsd": Warn, "": Warn,
	} {
		fs := judgeTmux("/usr/bin/tmux", version)
		if len(fs) != 1 || fs[0].Level != want {
			t.Errorf("%q: %+v, want %s", version, fs, want)
		}
	}
}
