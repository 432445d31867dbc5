# Makes a debootstrapped Debian a Millrace host. Runs inside it, as root, with `sh -eu`.

# The user Ansible logs in as: by key only, root through sudo.
useradd --create-home --shell /bin/bash --groups systemd-journal millrace
install -d -m 0700 -o millrace -g millrace /home/millrace/.ssh
echo 'millrace ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/millrace
chmod 0440 /etc/sudoers.d/millrace

cat > /etc/ssh/sshd_config.d/millrace.conf <<'CONF'
PermitRootLogin no
PasswordAuthentication no
KbdInteractiveAuthentication no
X11Forwarding no
UseDNS no
# Ansible opens many sessions at once.
MaxStartups 100
MaxSessions 100
CONF

# Each host has keys of its own, made at its first start.
rm -f /etc/ssh/ssh_host_*
install -d /etc/systemd/system/ssh.service.d
cat > /etc/systemd/system/ssh.service.d/host-keys.conf <<'CONF'
[Service]
ExecStartPre=
ExecStartPre=/usr/bin/ssh-keygen -A
ExecStartPre=/usr/sbin/sshd -t
CONF

# Kept over a restart, because a drill's logs are read after its host was killed; and bounded.
install -d /etc/systemd/journald.conf.d
cat > /etc/systemd/journald.conf.d/millrace.conf <<'CONF'
[Journal]
Storage=persistent
SystemMaxUse=64M
CONF

systemctl set-default multi-user.target

# Empty, not absent: each host gets its own, without the presets of a first boot.
: > /etc/machine-id
rm -f /var/lib/dbus/machine-id

apt-get clean
rm -rf /var/lib/apt/lists/* /var/log/apt /var/log/*.log
