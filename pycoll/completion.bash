# Completion of `pycoll` in bash, and in zsh after `autoload -U bashcompinit && bashcompinit`.
# The options are those that the help of a command lists.
_pycoll() {
  local word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]}
  if [ "$COMP_CWORD" = 1 ]; then
    COMPREPLY=($(compgen -W "COMMANDS --help --version --completion" -- "$word"))
  elif [[ $word == -* ]]; then
    COMPREPLY=($(compgen -W "$(pycoll "$command" --help 2> /dev/null | grep -oE -- '(^|[ [])--?[a-z][a-z-]*' | tr -d ' [' | sort -u)" -- "$word"))
  elif [ "$COMP_CWORD" = 2 ] && [[ " prove draw export simulate synthesize bench " == *" $command "* ]]; then
    COMPREPLY=($(compgen -W "PRIMITIVES" -- "$word"))
  else
    COMPREPLY=($(compgen -f -- "$word"))
  fi
}
complete -o filenames -F _pycoll pycoll
