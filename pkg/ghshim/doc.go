// Package ghshim stands in front of gh, GitHub's own command, on the PATH of an
// agent's session, and adds event.Marker to what the agent posts.
//
// An agent posts with its operator's token, so its own words come back as an
// event of an authorised person; the marker is what tells them apart. It is added
// to the text of `gh issue comment|create` and `gh pr comment|create|review`,
// given as --body, -b, --body-file or -F in any form that gh takes, and to a
// review that has no text. Everything else is handed on as it is. The real gh
// takes the shim's place as the same process: terminal, input, signals and exit
// status are its own.
//
// What it does not cover: texts that gh asks for, opens an editor or a browser
// for, or takes from commits and templates (--editor, --web, --fill, --template);
// `gh api`, extensions and gh's own aliases; edits of what was posted; anything
// that posts without gh, or with a PATH of its own making. The prompt tells the
// agent of the marker too, and routing.agentLogins drops accounts as a whole.
package ghshim
