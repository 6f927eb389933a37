"""Parts that several pages share: tables, charts, filter builder, flow tree, editor panels and checklist."""
