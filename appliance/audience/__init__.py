"""Who gets messages: contacts, lists, segments and the filters behind them."""
