# Installs tenure, and makes a Debian package of it: `make && sudo make install`, or `make deb`.
#
# Only `make` builds: whoever installs, root as a rule, needs no Rust.

PREFIX = /usr/local
DESTDIR =

TARGET = $(or $(CARGO_TARGET_DIR),target)
BINARY = $(TARGET)/release/tenure

bindir = $(PREFIX)/bin
mandir = $(PREFIX)/share/man/man1
docdir = $(PREFIX)/share/doc/tenure
bashdir = $(PREFIX)/share/bash-completion/completions
zshdir = $(PREFIX)/share/zsh/site-functions
fishdir = $(PREFIX)/share/fish/vendor_completions.d

all:
	cargo build --release --locked

# Where there is a program, it is the one that is installed: root may have no cargo to see whether it is new.
$(BINARY):
	cargo build --release --locked

install: $(BINARY)
	install -d $(DESTDIR)$(bindir) $(DESTDIR)$(mandir) $(DESTDIR)$(bashdir) $(DESTDIR)$(zshdir) $(DESTDIR)$(fishdir)
	install -m 755 $(BINARY) $(DESTDIR)$(bindir)/tenure
	install -m 644 man/*.1 $(DESTDIR)$(mandir)
	install -m 644 completions/tenure.bash $(DESTDIR)$(bashdir)/tenure
	install -m 644 completions/_tenure $(DESTDIR)$(zshdir)/_tenure
	install -m 644 completions/tenure.fish $(DESTDIR)$(fishdir)/tenure.fish

uninstall:
	rm -f $(DESTDIR)$(bindir)/tenure $(addprefix $(DESTDIR)$(mandir)/,$(notdir $(wildcard man/*.1)))
	rm -f $(DESTDIR)$(bashdir)/tenure $(DESTDIR)$(zshdir)/_tenure $(DESTDIR)$(fishdir)/tenure.fish

# The Debian package, as one file in the build directory.
deb: all
	packaging/deb $(BINARY) $(TARGET)

.PHONY: all install uninstall deb
