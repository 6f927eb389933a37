"""Parts that several pages share: tables, charts, the filter builder, the flow tree, editor panels and email frames."""
